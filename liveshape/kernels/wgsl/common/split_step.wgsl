// A step of the depth of split factors: three of the four products of their halves. Those with a remainder are 2^11 times
// smaller, so that what matrix units truncate of their sums is nothing, and they are summed apart.
#unroll k < BLOCKS_DEEP
#unroll i < BLOCKS_DOWN
        let high_$k_$i = subgroupMatrixLoad<Left, row_major>(
            &tile, (down + $iu * MATRIX_ROWS) * PITCH + high_at($ku), PITCH,
        );
        let low_$k_$i = subgroupMatrixLoad<Left, row_major>(
            &tile, (down + $iu * MATRIX_ROWS) * PITCH + high_at($ku) + LOW_AT, PITCH,
        );
#endunroll
#unroll j < BLOCKS_ACROSS
        let right_high_$k_$j = subgroupMatrixLoad<Right, col_major>(
            &tile, COLUMNS_AT + (across + $ju * MATRIX_COLUMNS) * PITCH + high_at($ku), PITCH,
        );
        let right_low_$k_$j = subgroupMatrixLoad<Right, col_major>(
            &tile, COLUMNS_AT + (across + $ju * MATRIX_COLUMNS) * PITCH + high_at($ku) + LOW_AT, PITCH,
        );
#unroll i < BLOCKS_DOWN
        rest_$i_$j = subgroupMatrixMultiplyAccumulate(low_$k_$i, right_high_$k_$j, rest_$i_$j);
#endunroll
#unroll i < BLOCKS_DOWN
        rest_$i_$j = subgroupMatrixMultiplyAccumulate(high_$k_$i, right_low_$k_$j, rest_$i_$j);
#endunroll
#unroll i < BLOCKS_DOWN
        sum_$i_$j = subgroupMatrixMultiplyAccumulate(high_$k_$i, right_high_$k_$j, sum_$i_$j);
#endunroll
#endunroll
#endunroll
