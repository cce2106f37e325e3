// The reduction over the threads of a unit that has ROWS rows of four columns.
override SUBGROUP: u32 = 0;
override HALVINGS: u32 = 4; // of 16 rows, the most there are

alias Total = array<vec4<f32>, ROWS>; // per row, the sums of four columns

fn combine(a: Total, b: Total) -> Total {
    var sums = a;
#unroll r < ROWS
    sums[$r] += b[$r];
#endunroll
    return sums;
}

#include reduction/across_threads

#if SUBGROUP
// One of two rows for a thread, the other one for its neighbour.
fn shared_rows(first: vec4<f32>, second: vec4<f32>, takes_second: bool, step: u32) -> vec4<f32> {
    return select(first, second, takes_second) + subgroupShuffleXor(select(second, first, takes_second), step);
}

// Neighbours halve the rows that they sum: 16 rows take 64 shuffles in all, and by themselves 20 each.
fn sum_rows(thread: u32, mine: Total) {
    var sums = mine;
    let member = member_of(thread);
    var row = 0u; // the first that this thread has
#unroll h < HALVINGS
    if (1u << $hu < min(SHUFFLED, ROWS)) {
        let half = ROWS >> ($hu + 1u);
        let upper = (member >> $hu) % 2u == 1u;
        row += select(0u, half, upper);
#unroll r < ROWS
        if ($ru < half) {
            sums[$r] = shared_rows(sums[$r], sums[min($ru + half, ROWS - 1u)], upper, STEP << $hu);
        }
#endunroll
    }
#endunroll
    for (var step = ROWS; step < SHUFFLED; step *= 2u) {
        sums[0] += subgroupShuffleXor(sums[0], STEP * step);
    }
    if (member % SHUFFLED < ROWS) { // those above have copies
        let place = unit_of(0u, thread) * SUBGROUPS + member / SHUFFLED;
#unroll r < ROWS
        if ($ru < max(ROWS / SHUFFLED, 1u)) {
            partial_totals[place][row + $ru] = sums[$r];
        }
#endunroll
    }
    workgroupBarrier();
}

fn total_of(thread: u32, row: u32, column: u32) -> f32 {
    let first = unit_of(0u, thread) * SUBGROUPS;
    var total = 0.0;
    for (var i = 0u; i < SUBGROUPS; i++) {
        total += partial_totals[first + i][row][column];
    }
    return total;
}
#else
fn sum_rows(thread: u32, mine: Total) {
    _ = reduce_unit(thread, mine);
}

fn total_of(thread: u32, row: u32, column: u32) -> f32 {
    return partial_totals[thread - member_of(thread) * STEP][row][column];
}
#endif
