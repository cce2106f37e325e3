// The product of a batch by matrix units: see common/matrix_tiles.wgsl. The right factor is lines of halves as
// matmul/half_lines.wgsl writes them, and so is the left one, unless it is a tensor of halves whose rows are whole vectors.
// With split-K the sums of a split are those of a batch of their own.
// scratch weight, factors, row_factors
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
// composable: a sum is stored once.
// TOut: f32, f16
#choice LEFT: lines, halves
#choice DEPTH: whole, splits
override WG: u32 = 128;
override ADDEND: bool = false;

struct Params {
#include matmul/params
    splits: u32, // of the depth (split-K)
}
#if DEPTH == splits
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
#endif
#if LEFT == halves
@group(0) @binding(1) var<storage, read> x: array<vec4<f16>>;
#else
// scratch x
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
#endif
@group(0) @binding(2) var<storage, read> addend: array<TOut>;
@group(0) @binding(3) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> factors: array<f32>;
#if LEFT == halves
@group(0) @binding(5) var<uniform> params: Params;
#else
@group(0) @binding(5) var<storage, read> row_factors: array<f32>;
@group(0) @binding(6) var<uniform> params: Params;
#endif

#if DEPTH == splits
#include matmul/store_split
#else
#include matmul/store
#endif
#include common/half_factors
#include common/matrix_tiles
#include common/matrix_grid

fn depth_vectors() -> u32 {
    return (params.depth + 7u) / 8u;
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
    return column_line(column) * depth_vectors();
}

fn row_vector(start: u32, eight: u32) -> vec4<u32> {
    if (eight >= depth_vectors()) {
        return vec4<u32>();
    }
#if LEFT == halves
    let place = 2u * (start + eight);
    return vec4<u32>(bitcast<vec2<u32>>(x[place]), bitcast<vec2<u32>>(x[place + 1u]));
#else
    return x[start + eight];
#endif
}

fn column_vector(start: u32, eight: u32) -> vec4<u32> {
    if (eight >= depth_vectors()) {
        return vec4<u32>();
    }
    return weight[start + eight];
}

fn store_sums(row: u32, column: u32, four: vec4<f32>) {
#if LEFT == halves
    let factor = 1.0;
#else
    let factor = row_factors[row_line(row)];
#endif
    for (var i = 0u; i < min(4u, params.columns - column); i++) {
        let value = given_back(four[i], factor, factors[column_line(column + i)]);
        store(split * params.batch + batch, row, column + i, value);
    }
}
