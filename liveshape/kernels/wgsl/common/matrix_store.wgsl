// The epilogue, behind the loop over the depth.
    let columns = columns_of(near_column(first_column + across + lane % OWN_FOURS * 4u));
#if EARLY
    // What is read for all places of a row of matrices is on its way before those of the row before are stored, as no
    // load passes a store. Of a heavy expression so many texts would be slower.
#unroll n < STORE_TURNS
    let own_row_$n = (lane + $nu * LANES) / OWN_FOURS;
    let own_four_$n = (lane + $nu * LANES) % OWN_FOURS;
    let column_$n = first_column + across + own_four_$n * 4u;
    var columns_$n = columns;
    if (!SAME_COLUMNS) {
        columns_$n = columns_of(near_column(column_$n));
    }
    var early_$n = early(min(first_row + down + own_row_$n, params.rows - 1u), near_column(column_$n));
#endunroll
#endif
#unroll i < BLOCKS_DOWN
#unroll j < BLOCKS_ACROSS
    subgroupMatrixStore<row_major>(
        &tile, place * MATRIX_ROWS * SUM_PITCH + $ju * MATRIX_COLUMNS / 4u, sum_$i_$j, SUM_PITCH,
    );
#endunroll
#if FACTORS == split
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
#endif
    workgroupBarrier();
    let first_row_$i = first_row + down + $iu * MATRIX_ROWS;
#if EARLY
#unroll n < STORE_TURNS
    let row_$i_$n = first_row_$i + own_row_$n;
    let later_$i_$n = early(min(row_$i_$n + MATRIX_ROWS, params.rows - 1u), near_column(column_$n));
#endunroll
#unroll n < STORE_TURNS
    store_place(place, own_row_$n, own_four_$n, row_$i_$n, column_$n, early_$n, columns_$n);
    early_$n = later_$i_$n;
#endunroll
#else
    for (var four = lane; four < MATRIX_ROWS * OWN_FOURS; four += LANES) {
        let row = first_row_$i + four / OWN_FOURS;
        let column = first_column + across + four % OWN_FOURS * 4u;
        let given = early(min(row, params.rows - 1u), near_column(column));
        var own_columns = columns;
        if (!SAME_COLUMNS) {
            own_columns = columns_of(near_column(column));
        }
        store_place(place, four / OWN_FOURS, four % OWN_FOURS, row, column, given, own_columns);
    }
#endif
    workgroupBarrier();
#endunroll
