// out[i] = the column and the row of place i in a picture, shifted and spread.
// T: f32, f16
override WG: u32 = 64;

struct Params {
    count: u32,
    width: u32,
    stride: f32,
    offset: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec2<T>>;

fn each(i: u32) {
    let place = vec2<f32>(vec2<u32>(i % params.width, i / params.width));
    out[i] = vec2<T>((place + params.offset) * params.stride);
}

#include common/each_in_runs
