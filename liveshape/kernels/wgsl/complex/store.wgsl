// out = scale * x, of the first `kept` elements of a dimension of `length`, or of that the REAL part.
override WG: u32 = 64;
override REAL: bool = false;

struct Params {
    count: u32,
    length: u32,
    kept: u32,
    inner: u32,
    scale: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<vec2<f32>>;
@group(0) @binding(2) var<uniform> params: Params;

fn each(i: u32) {
    let row = i / params.inner;
    let source = ((row / params.kept) * params.length + row % params.kept) * params.inner + i % params.inner;
    let value = params.scale * x[source];
    if (REAL) {
        out[i] = value.x;
    } else {
        out[2u * i] = value.x;
        out[2u * i + 1u] = value.y;
    }
}

#include common/each_in_runs
