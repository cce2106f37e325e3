// The patches of images as halves, each with all of its numbers as the channels of a pixel, in the order of a convolution's
// weight: four neighbours at a time. What halves cannot hold becomes NaN, so that nobody takes it for a number.
// T: f32, f16
override WG: u32 = 64;

struct Params {
    size: vec2<u32>, // height and width of an image
    patch_size: vec2<u32>,
    patches: vec2<u32>, // down and across
    channels: u32,
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<f16>>;
@group(0) @binding(1) var<storage, read> x: array<T>;

#include common/narrowed

fn each(i: u32) {
    let plane = params.patch_size.x * params.patch_size.y;
    let fours = params.channels * plane / 4u;
    let patch_index = i / fours;
    let row = patch_index / params.patches.y;
    let first = vec2<u32>(row % params.patches.x, patch_index % params.patches.y) * params.patch_size;
    let images = row / params.patches.x * params.channels;
    var four = vec4<f32>();
    for (var n = 0u; n < 4u; n++) {
        let depth = i % fours * 4u + n;
        let own = depth % plane;
        let at = first + vec2<u32>(own / params.patch_size.y, own % params.patch_size.y);
        four[n] = f32(x[((images + depth / plane) * params.size.x + at.x) * params.size.y + at.y]);
    }
    out[i] = vec4<f16>(narrowed(four));
}

#include common/each
