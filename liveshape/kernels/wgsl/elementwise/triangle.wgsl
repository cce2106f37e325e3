// out = x on and below a diagonal of its last two dimensions, or on and above it (UPPER), and zero elsewhere.
override WG: u32 = 64;
override UPPER: bool = false;

struct Params {
    count: u32,
    rows: u32,
    columns: u32,
    diagonal: i32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<uniform> params: Params;

fn each(i: u32) {
    let right = i32(i % params.columns) - i32((i / params.columns) % params.rows);
    let kept = select(right <= params.diagonal, right >= params.diagonal, UPPER);
    out[i] = select(T(0), x[i], kept);
}

#include common/each_in_runs
