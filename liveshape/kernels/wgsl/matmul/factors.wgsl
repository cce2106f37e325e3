// The tiles of a matrix product: x on the left, a weight on the right.
#include matmul/operands
#include matmul/tile

// Matrices are read as they lie: there is nothing to prepare or to prefetch.
fn begin(thread: u32, tile: Tile) {}

fn prefetch(thread: u32, tile: Tile, k: u32) {}

fn load_left(thread: u32, tile: Tile, first_k: u32) {
    let start = tile.batch * params.x_stride;
    for (var i = thread; i < TILE_ROWS * DEPTH_VEC4S; i += WG) {
        let row = tile.first_row + i / DEPTH_VEC4S;
        let k = first_k + i % DEPTH_VEC4S * 4u;
        var four = vec4<f32>();
        if (row < params.rows && k < params.depth) {
            four = x_within(start + row * params.depth + k, params.depth - k);
        }
        tile_left[(i / DEPTH_VEC4S) * PITCH + i % DEPTH_VEC4S] = four;
    }
}

fn load_right(thread: u32, tile: Tile, first_k: u32) {
    let start = tile.batch * params.weight_stride;
    if (TRANSPOSED) {
        load_right_transposed(thread, start, tile.first_column, first_k);
    } else {
        load_right_plain(thread, start, tile.first_column, first_k);
    }
}

fn load_right_transposed(thread: u32, start: u32, first_column: u32, first_k: u32) {
    for (var i = thread; i < TILE_COLUMNS * DEPTH_VEC4S; i += WG) {
        let column = first_column + i / DEPTH_VEC4S;
        let k = first_k + i % DEPTH_VEC4S * 4u;
        var four = vec4<f32>();
        if (column < params.columns && k < params.depth) {
            four = weight_within(start + column * line_step() + along_line(k), params.depth - k);
        }
        tile_right[(i / DEPTH_VEC4S) * PITCH + i % DEPTH_VEC4S] = four;
    }
}

fn load_right_plain(thread: u32, start: u32, first_column: u32, first_k: u32) {
    for (var i = thread; i < COLUMN_THREADS * DEPTH_VEC4S; i += WG) {
        let column = (i % COLUMN_THREADS) * 4u;
        let four = i / COLUMN_THREADS;
        let left = max(params.columns, first_column + column) - first_column - column;
        // The initializer is needed: naga zeroes a variable of a loop's body once, not at every turn.
        var block = mat4x4<f32>();
        for (var j = 0u; j < 4u; j++) {
            let k = first_k + four * 4u + j;
            if (k < params.depth) {
                block[j] = weight_within(start + k * params.columns + first_column + column, left);
            }
        }
        block = transpose(block);
        for (var j = 0u; j < 4u; j++) {
            tile_right[(column + j) * PITCH + four] = block[j];
        }
    }
}

fn store_sum(tile: Tile, row: u32, column: u32, sum: f32) {
    store_product(tile.result, tile.first_row + row, tile.first_column + column, sum);
}
