// out = real numbers as complex ones.
override WG: u32 = 64;

struct Params {
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> x: array<TIn>;
@group(0) @binding(2) var<uniform> params: Params;

fn each(i: u32) {
    out[i] = vec2<f32>(f32(x[i]), 0.0);
}

#include common/each_in_runs
