// out[i] = the element that number i of what was counted belongs to.
override WG: u32 = 64;

struct Params {
    count: u32,
    size: u32,
    span: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<i32>;
@group(0) @binding(1) var<storage, read> sums: array<i32>;
@group(0) @binding(2) var<storage, read> totals: array<i32>;

#include compaction/counted

fn each(i: u32) {
    out[i] = i32(element_of(i));
}

#include common/each_in_runs
