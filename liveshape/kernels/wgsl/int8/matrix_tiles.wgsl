// A linear layer between integers of eight bits by matrix units, from x [M, K] and a weight [N, K] as they lie: see
// common/matrix_tiles.wgsl. Sums are exact, and the epilogue is that of int8/linear.wgsl.
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 128;

#include int8/store_four

struct Params {
    batch: u32, // one
    rows: u32,
    columns: u32, // a multiple of 4
    depth: u32, // a multiple of 16
    splits: u32, // one
    x_zero: i32,
    x_scale: f32,
    inverse: f32, // of the output's scale
    zero: f32,
}
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> weight_sums: array<i32>; // of each column
@group(0) @binding(4) var<storage, read> scales: array<TScale>;
@group(0) @binding(5) var<storage, read> bias: array<TBias>;

#include common/bytes
#include int8/rescale
#include common/matrix_tiles
#include common/nothing_early
#include common/matrix_grid

fn depth_vectors() -> u32 {
    return params.depth / 16u;
}

fn depth_at(vector: u32) -> u32 {
    return vector;
}

fn row_start(row: u32) -> u32 {
    return row * depth_vectors();
}

fn column_start(column: u32) -> u32 {
    return column * depth_vectors();
}

fn row_vector(start: u32, vector: u32) -> vec4<u32> {
    if (vector >= depth_vectors()) {
        return vec4<u32>();
    }
    return x[start + vector];
}

fn column_vector(start: u32, vector: u32) -> vec4<u32> {
    if (vector >= depth_vectors()) {
        return vec4<u32>();
    }
    return weight[start + vector];
}

fn store_sums(row: u32, column: u32, four: vec4<i32>, given: Early, columns: Columns) {
    var values = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        let sum = four[i] - params.x_zero * weight_sums[column + i];
        values[i] = rescaled(sum, column + i, f32(scales[column + i]));
    }
    store_four(row * params.columns + column, params.rows * params.columns, values);
}
