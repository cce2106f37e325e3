#unroll k < BLOCKS_DEEP
#unroll i < BLOCKS_DOWN
        let left_$k_$i = subgroupMatrixLoad<Left, row_major>(
            &tile, (down + $iu * MATRIX_ROWS) * PITCH + $ku * MATRIX_DEPTH / PER_VECTOR, PITCH,
        );
#endunroll
#unroll j < BLOCKS_ACROSS
        let right_$k_$j = subgroupMatrixLoad<Right, col_major>(
            &tile, COLUMNS_AT + (across + $ju * MATRIX_COLUMNS) * PITCH + $ku * MATRIX_DEPTH / PER_VECTOR, PITCH,
        );
#unroll i < BLOCKS_DOWN
        sum_$i_$j = subgroupMatrixMultiplyAccumulate(left_$k_$i, right_$k_$j, sum_$i_$j);
#endunroll
#endunroll
#endunroll
