// What a group norm multiplies each channel of an image by, and what it adds, from the sums of normalization/pixel_sums.wgsl.
// scratch sums
// T: f32, f16
// TWeight: f32, f16
override WG: u32 = 64;
override AFFINE: u32 = 0; // 1: a weight, 2: an addend, 3: both

struct Params {
    count: u32, // channels of all images
    pixels: u32, // of an image
    channels: u32,
    group: u32, // channels
    parts: u32, // of the pixels
    eps: f32,
}
@group(0) @binding(0) var<storage, read_write> scales: array<f32>;
@group(0) @binding(1) var<storage, read_write> addends: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<T>;
@group(0) @binding(3) var<storage, read> sums: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> weight: array<TWeight>;
@group(0) @binding(5) var<storage, read> bias: array<TWeight>;
@group(0) @binding(6) var<uniform> params: Params;

fn each(i: u32) {
    let channel = i % params.channels;
    let of_group = channel / params.group;
    let image = i / params.channels;
    let start = (image * (params.channels / params.group) + of_group) * params.parts;
    var sum = vec2<f32>();
    for (var part = 0u; part < params.parts; part++) {
        sum += sums[start + part];
    }
    sum /= f32(params.pixels * params.group);
    let first = f32(x[image * params.pixels * params.channels + of_group * params.group]);
    var scale = 1.0 / sqrt(max(sum.y - sum.x * sum.x, 0.0) + params.eps);
    if ((AFFINE & 1u) != 0u) {
        scale *= f32(weight[channel]);
    }
    var addend = -(first + sum.x) * scale;
    if ((AFFINE & 2u) != 0u) {
        addend += f32(bias[channel]);
    }
    scales[i] = scale;
    addends[i] = addend;
}

#include common/each
