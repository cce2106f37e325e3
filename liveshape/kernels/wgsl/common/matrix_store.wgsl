#include common/store_columns
#unroll i < BLOCKS_DOWN
#unroll j < BLOCKS_ACROSS
    subgroupMatrixStore<row_major>(
        &tile, place * MATRIX_ROWS * SUM_PITCH + $ju * MATRIX_COLUMNS / 4u, sum_$i_$j, SUM_PITCH,
    );
#endunroll
#include common/store_row
#endunroll
