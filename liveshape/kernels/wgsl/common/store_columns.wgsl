// What the epilogue reads of the columns of a thread, and with EARLY of the places of its first row of matrices.
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
