// Reduction over the threads that cooperate on one unit of work. The includer says what a `Total` is and how two
// `combine`. Neighbouring threads are of one unit, or of ALTERNATING neighbouring units, whichever reads neighbouring
// memory. Partial results meet in workgroup memory, or by shuffles inside of a subgroup.
#choice TOTAL: value, sums_and_squares, rows
override UNIT_THREADS: u32 = 1;
override ALTERNATING: u32 = 1; // units whose threads alternate, at most those of a workgroup

const COOPERATING: u32 = min(UNIT_THREADS, WG); // a device may clamp the workgroup below UNIT_THREADS
const GROUP_UNITS: u32 = WG / COOPERATING;
const STEP: u32 = min(ALTERNATING, GROUP_UNITS); // from thread to thread of a unit

fn member_of(thread: u32) -> u32 {
    return (thread / STEP) % COOPERATING;
}

fn unit_of(group: u32, thread: u32) -> u32 {
    return group * GROUP_UNITS + thread / (STEP * COOPERATING) * STEP + thread % STEP;
}

#if SUBGROUP
const SHUFFLED: u32 = clamp(SUBGROUP / STEP, 1u, COOPERATING); // threads of a unit in a subgroup
const SUBGROUPS: u32 = COOPERATING / SHUFFLED;
const PARTIAL_TOTALS: u32 = WG / SHUFFLED;

fn shuffled(total: Total, step: u32) -> Total {
#if TOTAL == sums_and_squares
    return Total(subgroupShuffleXor(total.sums, step), subgroupShuffleXor(total.squares, step));
#elif TOTAL == rows
    var other = total;
#unroll r < ROWS
    other[$r] = subgroupShuffleXor(total[$r], step);
#endunroll
    return other;
#else
    return subgroupShuffleXor(total, step);
#endif
}
#else
const PARTIAL_TOTALS: u32 = WG;
#endif

var<workgroup> partial_totals: array<Total, PARTIAL_TOTALS>;

// The total of a unit, known to each of its threads.
fn reduce_unit(thread: u32, mine: Total) -> Total {
    let member = member_of(thread);
    var total = mine;
#if SUBGROUP
    for (var step = 1u; step < SHUFFLED; step *= 2u) {
        total = combine(total, shuffled(total, step * STEP));
    }
    if (SUBGROUPS == 1u) {
        return total;
    }
    let first = unit_of(0u, thread) * SUBGROUPS;
    if (member % SHUFFLED == 0u) {
        partial_totals[first + member / SHUFFLED] = total;
    }
    workgroupBarrier();
    total = partial_totals[first];
    for (var i = 1u; i < SUBGROUPS; i++) {
        total = combine(total, partial_totals[first + i]);
    }
#else
    partial_totals[thread] = mine;
    for (var half = COOPERATING / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (member < half) {
            partial_totals[thread] = combine(partial_totals[thread], partial_totals[thread + half * STEP]);
        }
    }
    workgroupBarrier();
    total = partial_totals[thread - member * STEP];
#endif
    workgroupBarrier();
    return total;
}
