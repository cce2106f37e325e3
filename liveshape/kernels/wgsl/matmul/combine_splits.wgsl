// Split-K of a product: sums the partial sums of its splits.
// composable: a sum is stored once.
// TOut: f32, f16
override WG: u32 = 64;
override ADDEND: bool = false;

struct Params {
#include matmul/params
    splits: u32,
    count: u32, // of sums
}
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> sums: array<f32>;
@group(0) @binding(2) var<storage, read> addend: array<TOut>;

#include matmul/store

fn each(i: u32) {
    var total = 0.0;
    for (var split = 0u; split < params.splits; split++) {
        total += sums[split * params.count + i];
    }
    let row = i / params.columns;
    store(row / params.rows, row % params.rows, i % params.columns, total);
}

#include common/each
