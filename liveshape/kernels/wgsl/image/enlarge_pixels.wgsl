// The nearest pixel of images with their channels last, four channels at a time.
// composable: each vector is stored once.
// T: f32, f16
override WG: u32 = 64;

struct Params {
    sizes: vec2<u32>, // height and width of x
    outs: vec2<u32>, // and of out
    scales: vec2<f32>,
    fours: u32, // of channels
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<T>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<T>>;

fn each(i: u32) {
    let pixel = i / params.fours;
    let row = pixel / params.outs.y;
    let image = row / params.outs.x;
    let at = vec2<f32>(f32(row - image * params.outs.x), f32(pixel - row * params.outs.y));
    let source = min(vec2<u32>(floor(at * params.scales)), params.sizes - 1u);
    out[i] = x[((image * params.sizes.x + source.x) * params.sizes.y + source.y) * params.fours + i % params.fours];
}

#include common/each
