// counts[i] = 1 where x, broadcast, is not zero, else 0.
override WG: u32 = 64;

struct Params {
    count: u32,
    rank: u32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> counts: array<i32>;
@group(0) @binding(1) var<storage, read> x: array<T>;

#include movement/walk

fn each(i: u32) {
    // Not by !=, which is false for NaN as naga compiles it.
    counts[i] = select(1, 0, x[walk(i)] == T(0));
}

#include common/each_in_runs
