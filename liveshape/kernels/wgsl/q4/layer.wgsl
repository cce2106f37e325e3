// What all kernels of a 4-bit linear layer share: see q4/scales.wgsl for its weight.
// TOut: f32, f16
// TBias: f32, f16
override BIAS: bool = false;

struct Params {
    rows: u32, // M
    columns: u32, // N
    depth: u32, // K
    column_bytes: u32, // of the weight
    weight_words: u32,
    scale_stride: u32, // from group to group
    splits: u32, // of the depth (split-K)
    norm_at: u32, // where the weight of an RMSNorm lies, behind the bias
#if EPILOGUE == rotary
#if POSITIONS == table
    positions: u32, // that the tables have
    slots: u32, // that a cache has
#else
    first_row: u32, // of the tables
    cache_start: u32, // elements of a cache before the first new row
#endif
#endif
}
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scales: array<vec4<TScale>>;
@group(0) @binding(3) var<storage, read> bias: array<TBias>;

#include q4/scales

var<private> split: u32; // of the depth, that the sums are of

fn with_bias(column: u32, product: f32) -> f32 {
    if (BIAS) {
        return product + f32(bias[column]);
    }
    return product;
}
