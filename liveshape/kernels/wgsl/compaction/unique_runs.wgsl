// Of the runs of equal pairs: the element of x that each begins with, its place, its LENGTH, or the RUN of each
// element.
override WG: u32 = 64;
override OP: u32 = VALUE;

const VALUE = 0u;
const RUN = 1u;
const LENGTH = 2u;
const PLACE = 3u;

struct Params {
    count: u32,
    size: u32,
    span: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<storage, read> pairs: array<vec2<i32>>;
@group(0) @binding(3) var<storage, read> sums: array<i32>;
@group(0) @binding(4) var<storage, read> totals: array<i32>;

#include compaction/counted

fn each(i: u32) {
    if (OP == VALUE) {
        out[i] = TOut(x[u32(pairs[element_of(i)].y)]);
    } else if (OP == PLACE) {
        out[i] = TOut(pairs[element_of(i)].y);
    } else if (OP == LENGTH) {
        out[i] = TOut(element_of(i + 1u) - element_of(i));
    } else {
        out[u32(pairs[i].y)] = TOut(counted(i) - 1u);
    }
}

#include common/each_in_runs
