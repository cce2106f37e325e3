// GEMM of rows of halves by the matrix units of a device, summed in floats: a workgroup stages a tile of both factors, a
// step of the depth at a time, and each of its subgroups sums BLOCKS_DOWN by BLOCKS_ACROSS matrices. The next step is
// prefetched to registers. What columns and rows were divided by lies in the scales, in this order, and is given back to
// the sums.
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
// TOut: f32, f16
// TScale: f32
// TBias: f32, f16
override WG: u32 = 128;
override LANES: u32 = 32; // of a subgroup
override MATRIX_ROWS: u32 = 16;
override MATRIX_COLUMNS: u32 = 16;
override MATRIX_DEPTH: u32 = 16;
override SUBGROUPS_DOWN: u32 = 2; // of the workgroup
override BLOCKS_DOWN: u32 = 4; // matrices of a subgroup
override BLOCKS_ACROSS: u32 = 4;
override BLOCKS_DEEP: u32 = 2; // of a step of the depth
override ROW_LOADS: u32 = 4; // vectors of eight halves that a thread stages in a step
override COLUMN_LOADS: u32 = 4;

const SUBGROUPS_ACROSS: u32 = WG / LANES / SUBGROUPS_DOWN;
const OWN_ROWS: u32 = BLOCKS_DOWN * MATRIX_ROWS; // of a subgroup
const OWN_COLUMNS: u32 = BLOCKS_ACROSS * MATRIX_COLUMNS;
const TILE_ROWS: u32 = SUBGROUPS_DOWN * OWN_ROWS;
const TILE_COLUMNS: u32 = SUBGROUPS_ACROSS * OWN_COLUMNS;
const ROWS: u32 = TILE_ROWS / 4; // in vec4s
const COLUMNS: u32 = TILE_COLUMNS / 4;
const STEP: u32 = BLOCKS_DEEP * MATRIX_DEPTH;
const EIGHTS: u32 = STEP / 8;
const PITCH: u32 = EIGHTS + 1; // one more, so that rows begin in different banks
const MATRIX_SIZE: u32 = MATRIX_ROWS * MATRIX_COLUMNS;

alias Left = subgroup_matrix_left<f16, MATRIX_DEPTH, MATRIX_ROWS>;
alias Right = subgroup_matrix_right<f16, MATRIX_COLUMNS, MATRIX_DEPTH>;
alias Sum = subgroup_matrix_result<f32, MATRIX_COLUMNS, MATRIX_ROWS>;

var<workgroup> row_tile: array<vec4<u32>, TILE_ROWS * PITCH>;
var<workgroup> column_tile: array<vec4<u32>, TILE_COLUMNS * PITCH>;
var<workgroup> sums: array<f32, WG / LANES * MATRIX_SIZE>;

@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
#include q4/layer
#include q4/epilogue

// Where the vector lies that a thread stages at first, of a row or of a column. A split may have no step at all.
fn first_load(load: u32, first: u32, count: u32, first_step: u32) -> u32 {
    let step = min(first_step, params.depth / STEP - 1u);
    return min(first + load / EIGHTS, count - 1u) * (params.depth / 8u) + step * EIGHTS + load % EIGHTS;
}

fn staged(load: u32) -> u32 {
    return load / EIGHTS * PITCH + load % EIGHTS;
}

// The epilogue of the matrix that a subgroup has stored.
fn store_matrix(lane: u32, place: u32, first_row: u32, first_column: u32) {
    workgroupBarrier();
    for (var four = lane; four < MATRIX_SIZE / 4u; four += LANES) {
        let row = first_row + four / (MATRIX_COLUMNS / 4u);
        let column = first_column + four % (MATRIX_COLUMNS / 4u) * 4u;
        let at = place * MATRIX_SIZE + four * 4u;
        if (row < params.rows && column < params.columns) {
            let factor = scale_one(params.scale_stride + row) * vec4<f32>(scales[column / 4u]);
            store_four(row, column, vec4<f32>(sums[at], sums[at + 1u], sums[at + 2u], sums[at + 3u]) * factor);
        }
    }
    workgroupBarrier();
}

fn compute(thread: u32, first_row: u32, first_column: u32, first_step: u32, last_step: u32) {
    let lane = thread % LANES;
    let place = subgroupBroadcastFirst(thread / LANES);
    let down = place / SUBGROUPS_ACROSS * OWN_ROWS;
    let across = place % SUBGROUPS_ACROSS * OWN_COLUMNS;
#unroll i < BLOCKS_DOWN
#unroll j < BLOCKS_ACROSS
    var sum_$i_$j = Sum();
#endunroll
#endunroll
#unroll i < ROW_LOADS
    var row_load_$i = first_load(thread + $iu * WG, first_row, params.rows, first_step);
    var next_row_$i = x[row_load_$i];
#endunroll
#unroll i < COLUMN_LOADS
    var column_load_$i = first_load(thread + $iu * WG, first_column, params.columns, first_step);
    var next_column_$i = weight[column_load_$i];
#endunroll
    for (var step = first_step; step < last_step; step++) {
#unroll i < ROW_LOADS
        row_tile[staged(thread + $iu * WG)] = next_row_$i;
#endunroll
#unroll i < COLUMN_LOADS
        column_tile[staged(thread + $iu * WG)] = next_column_$i;
#endunroll
        workgroupBarrier();
        let ahead = select(0u, EIGHTS, step + 1u < last_step);
#unroll i < ROW_LOADS
        row_load_$i += ahead;
        next_row_$i = x[row_load_$i];
#endunroll
#unroll i < COLUMN_LOADS
        column_load_$i += ahead;
        next_column_$i = weight[column_load_$i];
#endunroll
#unroll k < BLOCKS_DEEP
#unroll i < BLOCKS_DOWN
        let left_$k_$i = subgroupMatrixLoad<Left, row_major>(
            &row_tile, (down + $iu * MATRIX_ROWS) * PITCH + $ku * MATRIX_DEPTH / 8u, PITCH,
        );
#endunroll
#unroll j < BLOCKS_ACROSS
        let right_$k_$j = subgroupMatrixLoad<Right, col_major>(
            &column_tile, (across + $ju * MATRIX_COLUMNS) * PITCH + $ku * MATRIX_DEPTH / 8u, PITCH,
        );
#unroll i < BLOCKS_DOWN
        sum_$i_$j = subgroupMatrixMultiplyAccumulate(left_$k_$i, right_$k_$j, sum_$i_$j);
#endunroll
#endunroll
#endunroll
        workgroupBarrier();
    }
#unroll i < BLOCKS_DOWN
#unroll j < BLOCKS_ACROSS
    subgroupMatrixStore<row_major>(&sums, place * MATRIX_SIZE, sum_$i_$j, MATRIX_COLUMNS);
    store_matrix(lane, place, first_row + down + $iu * MATRIX_ROWS, first_column + across + $ju * MATRIX_COLUMNS);
#endunroll
#endunroll
}

#include q4/tile_grid
