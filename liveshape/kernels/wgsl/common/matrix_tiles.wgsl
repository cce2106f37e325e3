// GEMM of lines of halves by matrix units: see common/matrix_blocks.wgsl. The next step is prefetched to registers.
//
// Who includes this says where the halves lie, eight neighbours of the depth at a time: row_start and column_start of a
// row and a column, depth_at of the i-th eight of the depth, row_eight and column_eight of both.
#include common/matrix_blocks

fn staged(load: u32) -> u32 {
    return load / EIGHTS * PITCH + load % EIGHTS;
}

// The tile from a row and a column on, and its steps of the depth: a split may have none.
fn compute(thread: u32, first_row: u32, first_column: u32, first_step: u32, last_step: u32) {
#include common/matrix_sums
    let first = depth_at(min(first_step, last_step - 1u) * EIGHTS + thread % EIGHTS);
#unroll i < ROW_LOADS
    let row_start_$i = row_start(min(first_row + (thread + $iu * WG) / EIGHTS, params.rows - 1u));
    var next_row_$i = row_eight(row_start_$i, first);
#endunroll
#unroll i < COLUMN_LOADS
    let column_start_$i = column_start(min(first_column + (thread + $iu * WG) / EIGHTS, params.columns - 1u));
    var next_column_$i = column_eight(column_start_$i, first);
#endunroll
    for (var step = first_step; step < last_step; step++) {
#unroll i < ROW_LOADS
        row_tile[staged(thread + $iu * WG)] = next_row_$i;
#endunroll
#unroll i < COLUMN_LOADS
        column_tile[staged(thread + $iu * WG)] = next_column_$i;
#endunroll
        workgroupBarrier();
        let ahead = depth_at(min(step + 1u, last_step - 1u) * EIGHTS + thread % EIGHTS);
#unroll i < ROW_LOADS
        next_row_$i = row_eight(row_start_$i, ahead);
#endunroll
#unroll i < COLUMN_LOADS
        next_column_$i = column_eight(column_start_$i, ahead);
#endunroll
#include common/matrix_step
        workgroupBarrier();
    }
#include common/matrix_store
}
