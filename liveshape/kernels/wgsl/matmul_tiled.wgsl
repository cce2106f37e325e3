// A product in tiles of TILE_ROWS by 64 that a workgroup brings to its own memory, 16 of the depth at a time.
// Both tiles keep the depth innermost, in fours, so one thread's step is a vector times a 4 x 4 block.
// T: f32, f16
override WG: u32 = 256;
override TILE_ROWS: u32 = 64;

const TILE_COLUMNS: u32 = 64;
const FOURS: u32 = 4; // of the depth
const PITCH: u32 = FOURS + 1; // one more, so that neighbouring columns lie in different banks
const COLUMN_THREADS: u32 = TILE_COLUMNS / 4;
const ROW_THREADS: u32 = WG / COLUMN_THREADS;
const THREAD_ROWS: u32 = (TILE_ROWS + ROW_THREADS - 1) / ROW_THREADS;

var<workgroup> tile_x: array<vec4<f32>, THREAD_ROWS * ROW_THREADS * PITCH>;
var<workgroup> tile_weight: array<vec4<f32>, TILE_COLUMNS * PITCH>;

// include matmul_operands

fn load_x(lane: u32, start: u32, first_row: u32, first_k: u32) {
    for (var i = lane; i < TILE_ROWS * FOURS; i += WG) {
        let row = first_row + i / FOURS;
        let k = first_k + i % FOURS * 4u;
        var four = vec4<f32>();
        if (row < params.rows && k < params.depth) {
            four = x_within(start + row * params.depth + k, params.depth - k);
        }
        tile_x[(i / FOURS) * PITCH + i % FOURS] = four;
    }
}

fn load_weight_transposed(lane: u32, start: u32, first_column: u32, first_k: u32) {
    for (var i = lane; i < TILE_COLUMNS * FOURS; i += WG) {
        let column = first_column + i / FOURS;
        let k = first_k + i % FOURS * 4u;
        var four = vec4<f32>();
        if (column < params.columns && k < params.depth) {
            four = weight_within(start + column * params.depth + k, params.depth - k);
        }
        tile_weight[(i / FOURS) * PITCH + i % FOURS] = four;
    }
}

fn load_weight_plain(lane: u32, start: u32, first_column: u32, first_k: u32) {
    for (var i = lane; i < COLUMN_THREADS * FOURS; i += WG) {
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
            tile_weight[(column + j) * PITCH + four] = block[j];
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Tiles of one band of columns are neighbours, so that its part of the right factor stays in the cache.
    let tile = group_index(group, grid);
    let row_tiles = (params.rows + TILE_ROWS - 1u) / TILE_ROWS;
    let column_tiles = (params.columns + TILE_COLUMNS - 1u) / TILE_COLUMNS;
    let batch = tile / (row_tiles * column_tiles);
    if (batch >= params.batch) {
        return;
    }
    let first_row = (tile % row_tiles) * TILE_ROWS;
    let first_column = (tile / row_tiles % column_tiles) * TILE_COLUMNS;
    let x_start = batch * params.x_stride;
    let weight_start = batch * params.weight_stride;
    let column = lane % COLUMN_THREADS;
    let row = lane / COLUMN_THREADS;
    var sums: array<vec4<f32>, THREAD_ROWS>;
    for (var k = 0u; k < params.depth; k += FOURS * 4u) {
        load_x(lane, x_start, first_row, k);
        if (TRANSPOSED) {
            load_weight_transposed(lane, weight_start, first_column, k);
        } else {
            load_weight_plain(lane, weight_start, first_column, k);
        }
        workgroupBarrier();
        for (var four = 0u; four < FOURS; four++) {
            let block = mat4x4<f32>(
                tile_weight[column * PITCH + four],
                tile_weight[(column + COLUMN_THREADS) * PITCH + four],
                tile_weight[(column + 2u * COLUMN_THREADS) * PITCH + four],
                tile_weight[(column + 3u * COLUMN_THREADS) * PITCH + four],
            );
            for (var r = 0u; r < THREAD_ROWS; r++) {
                sums[r] += tile_x[(row + r * ROW_THREADS) * PITCH + four] * block;
            }
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < THREAD_ROWS; r++) {
        let tile_row = row + r * ROW_THREADS;
        if (tile_row < TILE_ROWS) {
            for (var c = 0u; c < 4u; c++) {
                put(batch, first_row + tile_row, first_column + column + c * COLUMN_THREADS, sums[r][c]);
            }
        }
    }
}
