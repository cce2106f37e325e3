// Matrix units truncate sums, and threads round: after SUM_STEPS steps their sums go to those of the threads.
        if ((step - first_step) % SUM_STEPS == SUM_STEPS - 1u) {
#unroll i < BLOCKS_DOWN
#unroll j < BLOCKS_ACROSS
            subgroupMatrixStore<row_major>(
                &tile, place * MATRIX_ROWS * SUM_PITCH + $ju * MATRIX_COLUMNS / 4u, sum_$i_$j, SUM_PITCH,
            );
            sum_$i_$j = Sum();
#endunroll
            workgroupBarrier();
#unroll n < STORE_TURNS
            total_$i_$n += bitcast<vec4<f32>>(tile[sum_at(place, lane + $nu * LANES)]);
#endunroll
            workgroupBarrier();
#endunroll
        }
