// out[target_start + i . target_strides] = x[source_start + i . source_strides] for every index i of `sizes`, in
// vectors.
// parts: they are moved as they are.
// composable: each vector is stored once.
// live VEC: 1, 2, 4
override WG: u32 = 64;

struct Params {
    count: u32,
    rank: u32,
    source_start: i32,
    target_start: i32,
    sizes: array<vec4<u32>, 2>,
    source_strides: array<vec4<i32>, 2>,
    target_strides: array<vec4<i32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> out: array<V>;
@group(0) @binding(1) var<storage, read> x: array<V>;

#include movement/walk_both

fn each(i: u32) {
    let offsets = walk_both(i);
    out[u32(offsets.y)] = x[u32(offsets.x)];
}

#include common/each_in_runs
