// What the two matmul kernels share: four neighbours of either factor at a time, and the epilogue.
// The right factor is [N, K] where TRANSPOSED (the weight of a linear layer), else [K, N].
// TOut: f32, f16
#choice DEPTH: whole, parts
#if WEIGHT == nibbles
// The right factor [K, N] is nibbles, eight to a word and offset by 8, its rows without gaps; a scale belongs to GROUP
// neighbours of a row and lies in [N / GROUP, K].
// TScale: f32, f16
override GROUP: u32 = 32;
override SCALE_STRIDE: u32 = 1; // at least K
#endif
override TRANSPOSED: bool = false;
override ADDEND: bool = false;

struct Params {
#include matmul/params
#if DEPTH == parts
    splits: u32, // of a long depth, each with partial sums of its own
    split_depth: u32,
#endif
}
#if DEPTH == parts
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
#endif
@group(0) @binding(1) var<storage, read> x: array<V>;
@group(0) @binding(2) var<storage, read> addend: array<TOut>;

#if WEIGHT == nibbles
@group(0) @binding(3) var<storage, read> weight: array<u32>;
@group(0) @binding(4) var<storage, read> scales: array<TScale>;
#elif WEIGHT != floats
// scratch weight, factors
// Lines [N, K] as half_lines.wgsl writes them, of a depth without zeros behind it, and what each was divided by.
@group(0) @binding(3) var<storage, read> weight: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> factors: array<f32>;
#else
@group(0) @binding(3) var<storage, read> weight: array<V>;
#endif

#include common/clamped

#include matmul/left

#include matmul/right
#if DEPTH == parts
#include matmul/store_split
#else
#include matmul/store
#endif

fn store_product(batch: u32, row: u32, column: u32, sum: f32) {
#if WEIGHT == halves
    store(batch, row, column, sum * factors[min(column, params.columns - 1u)]);
#else
    store(batch, row, column, sum);
#endif
}

// What a thread adds up: all of a batch, or a part of the depth of it.
struct Share {
    batch: u32,
    result: u32, // the batch of its results
    first_k: u32,
    last_k: u32,
}

fn share_of(index: u32) -> Share {
#if DEPTH == parts
    let first = index / params.batch * params.split_depth;
    return Share(index % params.batch, index, first, min(first + params.split_depth, params.depth));
#else
    return Share(index, index, 0u, params.depth);
#endif
}

fn shares() -> u32 {
#if DEPTH == parts
    return params.batch * params.splits;
#else
    return params.batch;
#endif
}
