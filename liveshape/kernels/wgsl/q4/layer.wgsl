// What all kernels of a 4-bit linear layer share: see q4/scales.wgsl for its weight.
override BIAS: bool = false;

struct Params {
    rows: u32, // M
    columns: u32, // N
    depth: u32, // K
    column_bytes: u32, // of the weight
    weight_words: u32,
    scale_stride: u32, // from group to group
    splits: u32, // of the depth (split-K)
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

// How many columns the bias has: those of all weights, where queries, keys and values have several.
fn bias_columns() -> u32 {
#if EPILOGUE == rotary
    return QUERY_COLUMNS + 2u * KEY_COLUMNS;
#elif EPILOGUE == qkv
    return QUERY_COLUMNS + KEY_COLUMNS + VALUE_COLUMNS;
#else
    return params.columns;
#endif
}

fn with_bias(column: u32, product: f32) -> f32 {
    if (BIAS) {
        return product + f32(bias[column]);
    }
    return product;
}
