// Behind the loop, in the place of common/matrix_store.wgsl: all sums of split factors.
#include common/store_columns
#unroll i < BLOCKS_DOWN
#unroll j < BLOCKS_ACROSS
    subgroupMatrixStore<row_major>(
        &tile, place * MATRIX_ROWS * SUM_PITCH + $ju * MATRIX_COLUMNS / 4u, sum_$i_$j, SUM_PITCH,
    );
#endunroll
    workgroupBarrier();
#unroll n < STORE_TURNS
    total_$i_$n += bitcast<vec4<f32>>(tile[sum_at(place, lane + $nu * LANES)]);
#endunroll
    workgroupBarrier();
#unroll j < BLOCKS_ACROSS
    subgroupMatrixStore<row_major>(
        &tile, place * MATRIX_ROWS * SUM_PITCH + $ju * MATRIX_COLUMNS / 4u, rest_$i_$j, SUM_PITCH,
    );
#endunroll
    workgroupBarrier();
#unroll n < STORE_TURNS
    if (lane + $nu * LANES < MATRIX_ROWS * OWN_FOURS) {
        let at_$n = sum_at(place, lane + $nu * LANES);
        tile[at_$n] = bitcast<vec4<u32>>(bitcast<vec4<f32>>(tile[at_$n]) + total_$i_$n);
    }
#endunroll
#include common/store_row
#endunroll
