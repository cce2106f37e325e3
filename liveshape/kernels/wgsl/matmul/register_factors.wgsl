// The factors of a matrix product for tiles in registers: x on the left, a weight on the right.
#include matmul/operands
#include matmul/tile

// Where four columns of the right factor begin, and how many of them there are.
struct Columns {
    start: u32,
    count: u32,
}

fn left_starts(tile: Tile, row: u32) -> vec4<u32> {
    let rows = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.rows - 1u));
    return tile.batch * params.x_stride + rows * params.depth;
}

fn right_starts(tile: Tile, column: u32) -> vec4<u32> {
    let columns = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.columns - 1u));
    return tile.batch * params.weight_stride + columns * line_step();
}

fn columns_at(tile: Tile, column: u32) -> Columns {
    return Columns(tile.batch * params.weight_stride + column, max(params.columns, column) - column);
}

fn left_block(tile: Tile, starts: vec4<u32>, k: u32) -> mat4x4<f32> {
    if (V_lanes == 4u && k >= params.depth) {
        return mat4x4<f32>();
    }
    let left = max(params.depth, k) - k;
    return mat4x4<f32>(
        left_four(starts.x + k, left), left_four(starts.y + k, left), left_four(starts.z + k, left),
        left_four(starts.w + k, left),
    );
}

fn right_block(tile: Tile, starts: vec4<u32>, k: u32) -> mat4x4<f32> {
    if (V_lanes == 4u && k >= params.depth) {
        return mat4x4<f32>();
    }
    let left = max(params.depth, k) - k;
    let places = starts + along_line(k);
    return mat4x4<f32>(
        right_vector(places.x, left), right_vector(places.y, left), right_vector(places.z, left),
        right_vector(places.w, left),
    );
}

fn right_four(tile: Tile, columns: Columns, k: u32) -> vec4<f32> {
    if (k >= params.depth || columns.count == 0u) {
        return vec4<f32>();
    }
    return right_vector(columns.start + k * params.columns, columns.count);
}

fn target_at(tile: Tile, column: u32) -> u32 {
    return column;
}

fn store_sum(tile: Tile, row: u32, column: u32, sum: f32) {
    store_product(tile.result, row, column, sum);
}
