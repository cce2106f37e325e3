// The epilogue of a row of matrices, `i`, whose sums are in the tile.
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
