// The product of a batch by matrix units, from lines of halves as matmul/halves.wgsl writes them: see
// common/matrix_tiles.wgsl. With split-K the sums of a split are those of a batch of their own.
// scratch x, weight, factors
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
// composable: a sum is stored once.
// T: f32, f16
override WG: u32 = 128;
override ADDEND: bool = false;

struct Params {
#include matmul/params
    splits: u32, // of the depth (split-K)
    right_lines: u32, // columns of all right factors, whose factors lie before those of the rows
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> addend: array<T>;
@group(0) @binding(3) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> factors: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

#include matmul/store
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
    return x[start + eight];
}

fn column_vector(start: u32, eight: u32) -> vec4<u32> {
    if (eight >= depth_vectors()) {
        return vec4<u32>();
    }
    return weight[start + eight];
}

fn store_sums(row: u32, column: u32, four: vec4<f32>) {
    let factor = factors[params.right_lines + row_line(row)];
    for (var i = 0u; i < min(4u, params.columns - column); i++) {
        let value = given_back(four[i], factor, factors[column_line(column + i)]);
        store(split * params.batch + batch, row, column + i, value);
    }
}
