// out = the first half of x along a dimension, times the sigmoid of the second.
// T: f32, f16
override WG: u32 = 64;

struct Params {
    count: u32,
    span: u32, // elements of half a dimension and of what lies inside of it
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<uniform> params: Params;

fn each(i: u32) {
    let at = i + (i / params.span) * params.span;
    out[i] = T(f32(x[at]) / (1.0 + exp(-f32(x[at + params.span]))));
}

#include common/each
