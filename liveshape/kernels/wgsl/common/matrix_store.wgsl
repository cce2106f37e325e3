#unroll i < BLOCKS_DOWN
#unroll j < BLOCKS_ACROSS
    subgroupMatrixStore<row_major>(&sums, place * MATRIX_SIZE, sum_$i_$j, MATRIX_COLUMNS);
    store_matrix(lane, place, first_row + down + $iu * MATRIX_ROWS, first_column + across + $ju * MATRIX_COLUMNS);
#endunroll
#endunroll
