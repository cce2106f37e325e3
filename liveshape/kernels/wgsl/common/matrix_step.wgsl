        // A loop, whose text no compiler unrolls: of 128 by 128 sums it compiles in a third of the time, and runs as fast.
        for (var k = 0u; k < BLOCKS_DEEP * MATRIX_DEPTH / PER_VECTOR; k += MATRIX_DEPTH / PER_VECTOR) {
#unroll i < BLOCKS_DOWN
            let left_$i = subgroupMatrixLoad<Left, row_major>(
                &tile, (down + $iu * MATRIX_ROWS) * PITCH + k, PITCH,
            );
#endunroll
#unroll j < BLOCKS_ACROSS
            let right_$j = subgroupMatrixLoad<Right, col_major>(
                &tile, COLUMNS_AT + (across + $ju * MATRIX_COLUMNS) * PITCH + k, PITCH,
            );
#unroll i < BLOCKS_DOWN
            sum_$i_$j = subgroupMatrixMultiplyAccumulate(left_$i, right_$j, sum_$i_$j);
#endunroll
#endunroll
        }
