// out = complex numbers along a dimension of `length`, of which only the first half is `given`: the others are their
// conjugates.
override WG: u32 = 64;

struct Params {
    count: u32,
    length: u32,
    given: u32,
    inner: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec2<f32>>;

fn each(i: u32) {
    let at = (i / params.inner) % params.length;
    let mirrored = at > params.length / 2u;
    let row = (i / (params.inner * params.length)) * params.given;
    let value = x[(row + select(at, params.length - at, mirrored)) * params.inner + i % params.inner];
    out[i] = vec2<f32>(value.x, select(value.y, -value.y, mirrored));
}

#include common/each_in_runs
