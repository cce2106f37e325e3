// What all kernels of a 4-bit linear layer share: the weight is [N, K] in nibbles, eight to a word, offset by 8, or in
// bytes with a sign; a scale belongs to GROUP neighbours of the depth of one column and lies in [K / GROUP, N], or in
// [K / GROUP, 2, N] with the minimum that is added to each of these.
override BITS: u32 = 4; // of a weight, 4 or 8
override MINIMA: bool = false;
override HIGH_FIRST: bool = false; // whether even places of the depth lie in the high nibbles
override SCALES_ALIGNED: bool = true; // whether the scales of four columns begin at a vector
override BIAS: bool = false;
override GROUP: u32 = 32; // neighbours of the depth with one scale

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

var<private> split: u32; // of the depth, that the sums are of

fn scale_one(i: u32) -> f32 {
    return f32(scales[i / 4u][i % 4u]);
}

fn four_from(i: u32, column: u32) -> vec4<f32> {
    if (SCALES_ALIGNED) {
        return vec4<f32>(scales[i / 4u]);
    }
    let most = params.columns - 1u - column;
    return vec4<f32>(
        scale_one(i), scale_one(i + min(1u, most)), scale_one(i + min(2u, most)), scale_one(i + min(3u, most)),
    );
}

// The scales of four neighbouring columns at a place of the depth.
fn scale_four(column: u32, k: u32) -> vec4<f32> {
    return four_from(k / GROUP * params.scale_stride + column, column);
}

// And their minima, if there are such.
fn minimum_four(column: u32, k: u32) -> vec4<f32> {
    if (MINIMA) {
        return four_from(k / GROUP * params.scale_stride + params.scale_stride / 2u + column, column);
    }
    return vec4<f32>();
}

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
