#unroll i < BLOCKS_DOWN
#unroll j < BLOCKS_ACROSS
    subgroupMatrixStore<row_major>(
        &tile, place * MATRIX_ROWS * SUM_PITCH + $ju * MATRIX_COLUMNS / 4u, sum_$i_$j, SUM_PITCH,
    );
#endunroll
    store_matrices(lane, place, first_row + down + $iu * MATRIX_ROWS, first_column + across);
#endunroll
