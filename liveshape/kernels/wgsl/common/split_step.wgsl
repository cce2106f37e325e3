// A step of the depth of split factors: three of the four products of their halves. Those with a remainder are 2^11 times
// smaller, so that what matrix units truncate of their sums is nothing, and they are summed apart. A loop compiles in a
// fifth of the time of its text unrolled.
        for (var k = 0u; k < BLOCKS_DEEP; k++) {
#unroll i < BLOCKS_DOWN
            let high_$i = subgroupMatrixLoad<Left, row_major>(
                &tile, (down + $iu * MATRIX_ROWS) * PITCH + high_at(k), PITCH,
            );
            let low_$i = subgroupMatrixLoad<Left, row_major>(
                &tile, (down + $iu * MATRIX_ROWS) * PITCH + high_at(k) + LOW_AT, PITCH,
            );
#endunroll
#unroll j < BLOCKS_ACROSS
            let right_high_$j = subgroupMatrixLoad<Right, col_major>(
                &tile, COLUMNS_AT + (across + $ju * MATRIX_COLUMNS) * PITCH + high_at(k), PITCH,
            );
            let right_low_$j = subgroupMatrixLoad<Right, col_major>(
                &tile, COLUMNS_AT + (across + $ju * MATRIX_COLUMNS) * PITCH + high_at(k) + LOW_AT, PITCH,
            );
#unroll i < BLOCKS_DOWN
            rest_$i_$j = subgroupMatrixMultiplyAccumulate(low_$i, right_high_$j, rest_$i_$j);
#endunroll
#unroll i < BLOCKS_DOWN
            rest_$i_$j = subgroupMatrixMultiplyAccumulate(high_$i, right_low_$j, rest_$i_$j);
#endunroll
#unroll i < BLOCKS_DOWN
            sum_$i_$j = subgroupMatrixMultiplyAccumulate(high_$i, right_high_$j, sum_$i_$j);
#endunroll
#endunroll
        }
