// Quantizes and dequantizes x by a scale and a zero point per row.
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

#include quantization/affine
#include common/bytes

fn each(i: u32) {
    let row = i / params.width;
    let step = f32(scale[row]);
    let zero = f32(signed_byte(zero_point[row / 4u], row % 4u));
    let value = f32(x[i]);
    let rounded = in_steps(value, 1.0 / step, zero, -128.0, 127.0) - zero;
    // A value that is no number has no place in the range: it comes through as it is.
    out[i] = select(value * (1.0 / step), rounded * step, is_number(value * (1.0 / step)));
}

#include common/each_in_runs
