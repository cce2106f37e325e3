// GEMM of lines of halves or bytes by matrix units: see common/matrix_blocks.wgsl. The next step is prefetched to
// registers.
//
// Who includes this says where these lie, a vector of neighbours of the depth at a time: row_start and column_start of a
// row and a column, depth_at of the i-th vector of the depth, row_vector and column_vector of both. Where columns lie
// `across`, vectors of neighbouring columns are neighbours in memory, and so they are loaded.
#choice RIGHT: lines, across
#include common/matrix_blocks

const BANK_VECTORS: u32 = 8; // that all banks of workgroup memory take at once
const PHASE_LINES: u32 = max(BANK_VECTORS / STEP_VECTORS, 1u); // whose vectors these are

// The row or column of a load, so far apart of those that are stored at once that they lie in different banks.
fn staged_line(load: u32) -> u32 {
    let line = load / STEP_VECTORS;
    let own = line % BANK_VECTORS;
    return line - own + own % PHASE_LINES * (BANK_VECTORS / PHASE_LINES) + own / PHASE_LINES;
}

fn staged(load: u32) -> u32 {
    return staged_line(load) * PITCH + load % STEP_VECTORS;
}

#if RIGHT == across
const RUN: u32 = min(BANK_VECTORS, WG / STEP_VECTORS); // columns whose vectors neighbouring threads load

fn column_of(load: u32) -> u32 {
    return load / (RUN * STEP_VECTORS) * RUN + load % RUN;
}

fn column_vector_of(load: u32) -> u32 {
    return load / RUN % STEP_VECTORS;
}
#else
fn column_of(load: u32) -> u32 {
    return staged_line(load);
}

fn column_vector_of(load: u32) -> u32 {
    return load % STEP_VECTORS;
}
#endif

#if FACTORS == split
const LOW_AT: u32 = 2; // vectors from a number's high part to its low one

// Where the high parts of the k-th matrices of a step lie: both parts of 16 neighbours of the depth are neighbours.
fn high_at(k: u32) -> u32 {
    return k * MATRIX_DEPTH / 16u * 4u + k * MATRIX_DEPTH % 16u / PER_VECTOR;
}

fn sum_at(place: u32, four: u32) -> u32 {
    let own = min(four, MATRIX_ROWS * OWN_FOURS - 1u);
    return (place * MATRIX_ROWS + own / OWN_FOURS) * SUM_PITCH + own % OWN_FOURS;
}
#endif

// The tile from a row and a column on, and its steps of the depth: a split may have none.
fn compute(thread: u32, first_row: u32, first_column: u32, first_step: u32, last_step: u32) {
#include common/matrix_sums
#if FACTORS == split
#include common/split_totals
#endif
#unroll i < ROW_LOADS
    let row_start_$i = row_start(min(first_row + staged_line(thread + $iu * WG), params.rows - 1u));
#endunroll
#unroll i < COLUMN_LOADS
    let column_start_$i = column_start(min(first_column + column_of(thread + $iu * WG), params.columns - 1u));
#endunroll
    let first = min(first_step, last_step - 1u) * STEP_VECTORS;
    let row_first = depth_at(first + thread % STEP_VECTORS);
    let column_first = depth_at(first + column_vector_of(thread));
#unroll i < ROW_LOADS
    var next_row_$i = row_vector(row_start_$i, row_first);
#endunroll
#unroll i < COLUMN_LOADS
    var next_column_$i = column_vector(column_start_$i, column_first);
#endunroll
    for (var step = first_step; step < last_step; step++) {
#unroll i < ROW_LOADS
        tile[staged(thread + $iu * WG)] = next_row_$i;
#endunroll
#unroll i < COLUMN_LOADS
        tile[COLUMNS_AT + column_of(thread + $iu * WG) * PITCH + column_vector_of(thread + $iu * WG)] = next_column_$i;
#endunroll
        workgroupBarrier();
        let ahead = min(step + 1u, last_step - 1u) * STEP_VECTORS;
        let row_ahead = depth_at(ahead + thread % STEP_VECTORS);
        let column_ahead = depth_at(ahead + column_vector_of(thread));
#unroll i < ROW_LOADS
        next_row_$i = row_vector(row_start_$i, row_ahead);
#endunroll
#unroll i < COLUMN_LOADS
        next_column_$i = column_vector(column_start_$i, column_ahead);
#endunroll
#if FACTORS == split
#include common/split_step
        workgroupBarrier();
#include common/split_sums
#else
#include common/matrix_step
        workgroupBarrier();
#endif
    }
#include common/matrix_store
}
