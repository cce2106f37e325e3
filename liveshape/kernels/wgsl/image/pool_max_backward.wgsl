// The gradient of an element is the sum of those of the windows that took it: each element asks the windows around it.
// T: f32, f16
override WG: u32 = 64;

struct Params {
    sizes: vec4<i32>, // depth, height and width of x
    outs: vec4<i32>, // and of what was pooled
    window: vec4<i32>,
    stride: vec4<i32>,
    padding: vec4<i32>,
    dilation: vec4<i32>,
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> gradient: array<T>;
@group(0) @binding(2) var<storage, read> indices: array<i32>;

#include image/place

fn each(i: u32) {
    let outs = params.outs.xyz;
    let stride = params.stride.xyz;
    let sizes = params.sizes.xyz;
    let place = place_of(i, sizes);
    let plane = place.plane * u32(outs.x * outs.y * outs.z);
    let index = (place.at.x * sizes.y + place.at.y) * sizes.z + place.at.z;
    let padded = place.at + params.padding.xyz;
    let reach = (params.window.xyz - 1) * params.dilation.xyz;
    let first = max((padded - reach + stride - 1) / stride, vec3<i32>(0));
    let last = min(padded / stride + 1, outs);
    var total = 0.0;
    for (var d = first.x; d < last.x; d++) {
        for (var h = first.y; h < last.y; h++) {
            for (var w = first.z; w < last.z; w++) {
                let window = plane + u32((d * outs.y + h) * outs.z + w);
                if (indices[window] == index) {
                    total += f32(gradient[window]);
                }
            }
        }
    }
    out[i] = T(total);
}

#include common/each
