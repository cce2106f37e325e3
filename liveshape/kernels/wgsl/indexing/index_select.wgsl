// out[outer, pick, :] = x[outer, index[pick], :]; an index outside of x gives `invalid` and reads nothing.
// composable: each vector is stored once.
#choice ELEMENTS: alike, packed
override WG: u32 = 64;
override WRAP: bool = false; // whether a negative index counts from the end

struct Params {
    count: u32, // in vectors
    picks: u32,
    inner: u32, // in vectors
    size: i32,
    invalid: f32,
}
#if ELEMENTS == packed
@group(0) @binding(0) var<storage, read_write> out: array<u32>; // words of four elements, each row of whole ones
@group(0) @binding(1) var<storage, read> x: array<u32>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<V>;
@group(0) @binding(1) var<storage, read> x: array<V>;
#endif
@group(0) @binding(2) var<storage, read> index: array<i32>;

fn each(i: u32) {
    let row = i / params.inner;
    var at = index[row % params.picks];
    if (WRAP && at < 0) {
        at += params.size;
    }
    if (at < 0 || at >= params.size) {
#if ELEMENTS == packed
        out[i] = u32(params.invalid);
#else
        out[i] = V(T(params.invalid));
#endif
        return;
    }
    out[i] = x[((row / params.picks) * u32(params.size) + u32(at)) * params.inner + i % params.inner];
}

#include common/each_in_runs
