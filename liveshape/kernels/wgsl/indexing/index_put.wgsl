// out[outer, index[pick], :] = values[outer, pick, :], values broadcast; an index outside of out writes nothing.
override WG: u32 = 64;

struct Params {
    count: u32,
    picks: u32,
    inner: u32,
    size: i32,
    rank: u32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> index: array<i32>;
@group(0) @binding(2) var<storage, read> values: array<T>;

#include movement/walk

fn each(i: u32) {
    let row = i / params.inner;
    let at = index[row % params.picks];
    if (at < 0 || at >= params.size) {
        return;
    }
    out[((row / params.picks) * u32(params.size) + u32(at)) * params.inner + i % params.inner] = values[walk(i)];
}

#include common/each_in_runs
