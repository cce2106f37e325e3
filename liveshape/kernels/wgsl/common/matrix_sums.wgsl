    let lane = thread % LANES;
    let place = subgroupBroadcastFirst(thread / LANES);
    let down = place / SUBGROUPS_ACROSS * OWN_ROWS;
    let across = place % SUBGROUPS_ACROSS * OWN_COLUMNS;
#unroll i < BLOCKS_DOWN
#unroll j < BLOCKS_ACROSS
    var sum_$i_$j = Sum();
#endunroll
#endunroll
