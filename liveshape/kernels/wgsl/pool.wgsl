// Each element of out is found in a window of x: one walk for averages and maxima, in up to three dimensions.
// T: f32, f16, i32
override WG: u32 = 64;
override ADAPTIVE: bool = false; // windows share x out evenly, whatever its size

struct Params {
    sizes: vec4<i32>, // depth, height and width of x
    outs: vec4<i32>, // and of out
    window: vec4<i32>,
    stride: vec4<i32>,
    padding: vec4<i32>,
    dilation: vec4<i32>,
    count: u32,
    divisor: i32,
    lowest: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;

// include pool_average
// include place

fn each(i: u32) {
    let sizes = params.sizes.xyz;
    let outs = params.outs.xyz;
    let padding = params.padding.xyz;
    let dilation = params.dilation.xyz;
    let place = place_of(i, outs);
    let plane = place.plane * u32(sizes.x * sizes.y * sizes.z);
    var low = place.at * params.stride.xyz - padding;
    var high = low + (params.window.xyz - 1) * dilation + 1;
    if (ADAPTIVE) {
        low = place.at * sizes / outs;
        high = ((place.at + 1) * sizes + outs - 1) / outs;
    }
    let first = low + max((dilation - 1 - low) / dilation, vec3<i32>(0)) * dilation;
    let last = min(high, sizes);
    var found = nothing((first.x * sizes.y + first.y) * sizes.z + first.z);
    for (var d = first.x; d < last.x; d += dilation.x) {
        for (var h = first.y; h < last.y; h += dilation.y) {
            for (var w = first.z; w < last.z; w += dilation.z) {
                let index = (d * sizes.y + h) * sizes.z + w;
                found = look(found, T_math(x[plane + u32(index)]), index);
            }
        }
    }
    put(i, found, last - first, min(high, sizes + padding) - low);
}

// include each
