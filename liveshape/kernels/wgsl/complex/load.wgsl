// out = complex numbers along a dimension of `length`: REAL ones, FULL ones as they are, or those of which only the
// first HALF is `given`, because the others are their conjugates.
override WG: u32 = 64;
override OP: u32 = REAL;

const REAL = 0u;
const FULL = 1u;
const HALF = 2u;

struct Params {
    count: u32,
    length: u32,
    given: u32,
    inner: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

fn each(i: u32) {
    if (OP == REAL) {
        out[i] = vec2<f32>(x[i], 0.0);
        return;
    }
    var source = i;
    var sign = 1.0;
    if (OP == HALF) {
        let at = (i / params.inner) % params.length;
        let mirrored = at > params.length / 2u;
        sign = select(1.0, -1.0, mirrored);
        let row = (i / (params.inner * params.length)) * params.given;
        source = (row + select(at, params.length - at, mirrored)) * params.inner + i % params.inner;
    }
    out[i] = vec2<f32>(x[2u * source], sign * x[2u * source + 1u]);
}

#include common/each_in_runs
