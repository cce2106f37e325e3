// out[i, :] = the index, dimension by dimension, of the element that number i of what was counted belongs to.
override WG: u32 = 64;

struct Params {
    count: u32,
    size: u32,
    span: u32,
    rank: u32,
    sizes: array<vec4<u32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> out: array<i32>;
@group(0) @binding(1) var<storage, read> sums: array<i32>;
@group(0) @binding(2) var<storage, read> totals: array<i32>;

#include compaction/counted

fn each(i: u32) {
    var rest = element_of(i);
    for (var axis = params.rank; axis > 0u; axis--) {
        let dim = axis - 1u;
        let size = params.sizes[dim >> 2u][dim & 3u];
        out[i * params.rank + dim] = i32(rest % size);
        rest /= size;
    }
}

#include common/each_in_runs
