// out = x as eight bits with a scale and a zero point per row can hold it, as numbers again.
// T: f32, f16
// TScale: f32, f16
override WG: u32 = 64;

struct Params {
    count: u32,
    width: u32, // of a row
}
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<storage, read> scale: array<TScale>;
@group(0) @binding(3) var<storage, read> zero_point: array<u32>;
@group(0) @binding(4) var<uniform> params: Params;

fn each(i: u32) {
    let row = i / params.width;
    let step = f32(scale[row]);
    // A byte moved to the top of the word and back brings its sign along.
    let zero = f32(bitcast<i32>(zero_point[row / 4u] << (24u - row % 4u * 8u)) >> 24u);
    let value = f32(x[i]) * (1.0 / step);
    let rounded = clamp(round(value) + zero, -128.0, 127.0) - zero;
    // A value that is no number has no place in the range: it comes through as it is.
    let odd = (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u;
    out[i] = select(rounded * step, value, odd);
}

// include each
