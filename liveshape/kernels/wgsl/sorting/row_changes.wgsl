// counts[i] = 1 where row i of the order is another than the one before it, else 0.
// T: f32, f16, i32, u32
override WG: u32 = 64;

struct Params {
    count: u32,
    rows: u32,
    columns: u32,
    inner: u32,
}
@group(0) @binding(0) var<storage, read_write> counts: array<i32>;
@group(0) @binding(1) var<storage, read> pairs: array<vec2<i32>>;
@group(0) @binding(2) var<storage, read> x: array<T>;

#include sorting/row_order

fn each(i: u32) {
    let before = u32(pairs[max(i, 1u) - 1u].y);
    counts[i] = select(0, 1, i == 0u || compare(before, u32(pairs[i].y)) != 0);
}

#include common/each
