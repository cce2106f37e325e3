// The epilogue of a 4-bit linear layer: what becomes of the sums of four neighbouring columns of a row. Outputs are the
// last bindings.
#choice EPILOGUE: store, split_k, qkv, rotary, residual, gated, residual_quantized, gated_quantized
#if EPILOGUE == split_k
// The sums of one split of the depth, without more, for q4/combine_splits.wgsl to add to the others: rows are whole
// vectors.
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;

fn store_four(row: u32, column: u32, products: vec4<f32>) {
    if (row < params.rows && column < params.columns) {
        out[(split * params.rows + row) * ((params.columns + 3u) / 4u) + column / 4u] = products;
    }
}
#elif EPILOGUE == gated_quantized
// A function of two layers of one input, quantized for the layer that reads it: columns are a multiple of 64, and those of
// 32 neighbours lie in one workgroup.
@group(0) @binding(4) var<storage, read_write> out: array<vec4<u32>>;

#include q4/gated
#include quantization/quantize_group

// 32 neighbours of a row, from the pairs at 16 places on.
fn group_at(place: u32) -> Eight {
    var eight: Eight;
#unroll n < 8
    eight[$n] = vec4<f32>(pair_at(place + 2u * $nu), pair_at(place + 2u * $nu + 1u));
#endunroll
    return eight;
}
#elif EPILOGUE == residual_quantized
// The layer of one row, plus a residual. The sum is a result, and once more quantized for layers that read its RMSNorm:
// times the weight of that, and with its sum of squares, from which those layers get the RMSNorm scale. Columns
// are a multiple of 32.
@group(0) @binding(4) var<storage, read> residual: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> total: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> out: array<vec4<u32>>;

#include quantization/quantize_group
#elif EPILOGUE == gated
// A function of two layers of one input.
@group(0) @binding(4) var<storage, read_write> out: array<TOut>;

#include q4/gated

fn store_four(row: u32, column: u32, products: vec4<f32>) {
    if (row >= params.rows || column >= params.columns) {
        return;
    }
    let gated = gated_of(column, products);
    let i = row * (params.columns / 2u) + column / 2u;
    out[i] = TOut(gated.x);
    if (column + 2u < params.columns) {
        out[i + 1u] = TOut(gated.y);
    }
}
#elif EPILOGUE == rotary
// Queries, keys and values of one input, their columns behind each other in the weight: rotary embedding of queries and
// keys; keys and values are written to their caches, behind each other or at the slots of a table of rows. The columns
// of a rotated pair are neighbours in the weight.
// TAngle: f32, f16
// TKey: f32, f16
override INTERLEAVED: bool = true; // whether they are neighbours in the head, too; else half a head apart
override HEAD_SIZE: u32 = 2;
override QUERY_COLUMNS: u32 = 0;
override KEY_COLUMNS: u32 = 0; // and as many of the values
override FIRST_COLUMN: u32 = 0; // that the weight has of these: values may have a weight of their own

@group(0) @binding(4) var<storage, read> cosine: array<TAngle>;
@group(0) @binding(5) var<storage, read> sine: array<TAngle>;
@group(0) @binding(6) var<storage, read_write> query_out: array<TOut>;
@group(0) @binding(7) var<storage, read_write> key_out: array<TKey>;
@group(0) @binding(8) var<storage, read_write> value_out: array<TKey>;
#if POSITIONS == table
@group(0) @binding(9) var<storage, read> row_table: array<vec2<i32>>;
#endif

#include attention/rotate

fn store_pair(row: u32, of_weight: u32, products: vec2<f32>) {
    if (row >= params.rows || of_weight >= params.columns) {
        return;
    }
    let column = FIRST_COLUMN + of_weight;
    let pair = vec2<f32>(with_bias(column, products.x), with_bias(column + 1u, products.y));
#if POSITIONS == table
    let slot = slot_of(row);
    if (column >= QUERY_COLUMNS && slot >= params.slots) {
        return;
    }
    let start = slot * KEY_COLUMNS;
    let position = angle_row(row);
#else
    let start = params.cache_start + row * KEY_COLUMNS;
    let position = params.first_row + row;
#endif
    if (column >= QUERY_COLUMNS + KEY_COLUMNS) {
        let place = start + column - QUERY_COLUMNS - KEY_COLUMNS;
        value_out[place] = TKey(pair.x);
        value_out[place + 1u] = TKey(pair.y);
        return;
    }
    let own = select(column, column - QUERY_COLUMNS, column >= QUERY_COLUMNS);
    let i = own % HEAD_SIZE / 2u;
    let half = select(HEAD_SIZE / 2u, 0u, INTERLEAVED);
    let angle = position * (HEAD_SIZE / 2u + half) + i;
    let result = rotated(pair, angle, angle + half);
    let place = own - own % HEAD_SIZE + select(i, 2u * i, INTERLEAVED);
    let other = place + select(HEAD_SIZE / 2u, 1u, INTERLEAVED);
    if (column >= QUERY_COLUMNS) {
        key_out[start + place] = TKey(result.x);
        key_out[start + other] = TKey(result.y);
    } else {
        query_out[row * QUERY_COLUMNS + place] = TOut(result.x);
        query_out[row * QUERY_COLUMNS + other] = TOut(result.y);
    }
}

fn store_four(row: u32, column: u32, products: vec4<f32>) {
    store_pair(row, column, products.xy);
    store_pair(row, column + 2u, products.zw);
}
#elif EPILOGUE == residual
// The layer, rounded as by an operator of its own, plus a residual, which may be prefetched while the sums are made.
@group(0) @binding(4) var<storage, read> residual: array<TOut>;
@group(0) @binding(5) var<storage, read_write> out: array<TOut>;

var<private> residual_ahead: vec4<f32>;

fn prefetch_residual(row: u32, column: u32) {
#unroll i < 4
    residual_ahead[$i] = f32(residual[row * params.columns + min(column + $iu, params.columns - 1u)]);
#endunroll
}

fn store_prefetched(row: u32, column: u32, products: vec4<f32>) {
#unroll i < 4
    if (row < params.rows && column + $iu < params.columns) {
        let layer = f32(TOut(with_bias(column + $iu, products[$i])));
        out[row * params.columns + column + $iu] = TOut(residual_ahead[$i] + layer);
    }
#endunroll
}

fn store_four(row: u32, column: u32, products: vec4<f32>) {
    prefetch_residual(min(row, params.rows - 1u), column);
    store_prefetched(row, column, products);
}
#else
#if EPILOGUE == qkv
// The QKV projections of one input: their columns lie behind each other in the weight.
override QUERY_COLUMNS: u32 = 0;
override KEY_COLUMNS: u32 = 0;
override VALUE_COLUMNS: u32 = 0;
override FIRST_COLUMN: u32 = 0; // that the weight has of these: values may have a weight of their own

@group(0) @binding(4) var<storage, read_write> out_1: array<TOut>;
@group(0) @binding(5) var<storage, read_write> out_2: array<TOut>;
@group(0) @binding(6) var<storage, read_write> out_3: array<TOut>;

fn store(row: u32, of_weight: u32, product: f32) {
    if (row >= params.rows || of_weight >= params.columns) {
        return;
    }
    let column = FIRST_COLUMN + of_weight;
    let value = TOut(with_bias(column, product));
    if (column < QUERY_COLUMNS) {
        out_1[row * QUERY_COLUMNS + column] = value;
    } else if (column < QUERY_COLUMNS + KEY_COLUMNS) {
        out_2[row * KEY_COLUMNS + column - QUERY_COLUMNS] = value;
    } else {
        out_3[row * VALUE_COLUMNS + column - QUERY_COLUMNS - KEY_COLUMNS] = value;
    }
}
#else
@group(0) @binding(4) var<storage, read_write> out: array<TOut>;

fn store(row: u32, column: u32, product: f32) {
    if (row < params.rows && column < params.columns) {
        out[row * params.columns + column] = TOut(with_bias(column, product));
    }
}
#endif

fn store_four(row: u32, column: u32, products: vec4<f32>) {
#unroll i < 4
    store(row, column + $iu, products[$i]);
#endunroll
}
#endif
