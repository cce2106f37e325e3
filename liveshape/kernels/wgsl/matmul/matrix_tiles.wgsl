// The product of a batch by matrix units: see common/matrix_tiles.wgsl. The right factor is lines of halves as
// matmul/half_lines.wgsl writes them, a constant one across, and so is the left one, unless it is a tensor of halves
// whose rows are whole vectors.
// With split-K the sums of a split are those of a batch of their own.
// scratch weight, factors, row_factors
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
// composable: a sum is stored once.
// TOut: f32, f16
#choice LEFT: lines, halves
#choice DEPTH: whole, splits
#choice COLUMNS: fours, any
override WG: u32 = 128;
override ADDEND: bool = false;
override WHOLE_STEPS: bool = false; // whether no step reaches beyond the depth

struct Params {
#include matmul/params
    splits: u32, // of the depth (split-K)
}
#if DEPTH == splits
#if COLUMNS == fours
@group(0) @binding(0) var<storage, read_write> out: array<vec4<f32>>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
#endif
#else
#if COLUMNS == fours
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
#endif
#endif
#if COLUMNS == fours
@group(0) @binding(1) var<storage, read> addend: array<vec4<TOut>>;
@group(0) @binding(2) var<storage, read> factors: array<vec4<f32>>;
#else
@group(0) @binding(1) var<storage, read> addend: array<TOut>;
@group(0) @binding(2) var<storage, read> factors: array<f32>;
#endif
#if LEFT == halves
// words x
#else
// scratch x
#endif
@group(0) @binding(3) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> weight: array<vec4<u32>>;
#if LEFT == lines
@group(0) @binding(5) var<storage, read> row_factors: array<f32>;
#endif

#if COLUMNS == any
#if DEPTH == splits
#include matmul/store_split
#else
#include matmul/store
#endif
#include common/nothing_early
#else
#include matmul/store_fours
#endif
#include common/half_factors
#include common/matrix_tiles
#include common/matrix_grid

fn depth_vectors() -> u32 {
#if FACTORS == split
    return (params.depth + 15u) / 16u * 4u;
#else
    return (params.depth + 7u) / 8u;
#endif
}

fn row_line(row: u32) -> u32 {
    return batch * (params.x_stride / params.depth) + row;
}

fn column_line(column: u32) -> u32 {
    return batch * (params.weight_stride / params.depth) + column;
}

fn depth_at(eight: u32) -> u32 {
    return eight;
}

fn row_start(row: u32) -> u32 {
    return row_line(row) * depth_vectors();
}

fn column_start(column: u32) -> u32 {
#if RIGHT == across
    return batch * (params.weight_stride / params.depth) * depth_vectors() + column;
#else
    return column_line(column) * depth_vectors();
#endif
}

fn row_vector(start: u32, eight: u32) -> vec4<u32> {
    if (!WHOLE_STEPS && eight >= depth_vectors()) {
        return vec4<u32>();
    }
    return x[start + eight];
}

fn column_vector(start: u32, eight: u32) -> vec4<u32> {
    if (!WHOLE_STEPS && eight >= depth_vectors()) {
        return vec4<u32>();
    }
#if RIGHT == across
    return weight[start + eight * params.columns];
#else
    return weight[start + eight];
#endif
}

fn factor_of(row: u32) -> f32 {
#if LEFT == halves
    return 1.0;
#else
    return row_factors[row_line(row)];
#endif
}

// The sums of four neighbours, given back what their lines were divided by.
fn store_sums(row: u32, column: u32, four: vec4<f32>, given: Early, columns: Columns) {
#if COLUMNS == fours
    let factor = vec4<f32>(given.factor);
    store(row, column, four * min(factor, columns.factors) * max(factor, columns.factors), given, columns);
#else
    let result = split * params.batch + batch;
    let factor = factor_of(row);
    for (var i = 0u; i < min(4u, params.columns - column); i++) {
        store(result, row, column + i, given_back(four[i], factor, factors[column_line(column + i)]));
    }
#endif
}
