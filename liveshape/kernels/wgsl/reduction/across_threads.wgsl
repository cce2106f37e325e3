// A reduction over SHARE threads that cooperate on one unit of work. The includer says what a `Total` is and how two
// `combine`. Neighbouring threads take parts of one unit (INNER), or the same part of neighbouring units, whichever reads
// neighbouring memory. Partial results meet in workgroup memory, or by shuffles inside of a subgroup.
#choice TOTAL: value, sums_and_squares
override PARTS: u32 = 1;
override INNER: bool = true;

const SHARE: u32 = min(PARTS, WG); // a device may clamp the workgroup below PARTS
const ACROSS: u32 = WG / SHARE;
const STEP: u32 = select(ACROSS, 1u, INNER);

fn part_of(lane: u32) -> u32 {
    return (lane / STEP) % SHARE;
}

fn unit_of(group: u32, lane: u32) -> u32 {
    return group * ACROSS + select(lane % ACROSS, lane / SHARE, INNER);
}

#if SUBGROUP
const BESIDE: u32 = clamp(SUBGROUP / STEP, 1u, SHARE); // parts of a unit in a subgroup
const APART: u32 = SHARE / BESIDE;
const MET: u32 = WG / BESIDE;

var<workgroup> of_parts: array<Total, MET>;

fn handed(total: Total, step: u32) -> Total {
#if TOTAL == sums_and_squares
    return Total(subgroupShuffleXor(total.sums, step), subgroupShuffleXor(total.squares, step));
#else
    return subgroupShuffleXor(total, step);
#endif
}

// The total of a unit, known to each of its threads.
fn across_parts(lane: u32, mine: Total) -> Total {
    var total = mine;
    for (var step = 1u; step < BESIDE; step *= 2u) {
        total = combine(total, handed(total, step * STEP));
    }
    if (APART == 1u) {
        return total;
    }
    let part = part_of(lane);
    let first = unit_of(0u, lane) * APART;
    if (part % BESIDE == 0u) {
        of_parts[first + part / BESIDE] = total;
    }
    workgroupBarrier();
    total = of_parts[first];
    for (var i = 1u; i < APART; i++) {
        total = combine(total, of_parts[first + i]);
    }
    workgroupBarrier();
    return total;
}
#else
var<workgroup> of_parts: array<Total, WG>;

// The total of a unit, known to each of its threads.
fn across_parts(lane: u32, mine: Total) -> Total {
    let part = part_of(lane);
    of_parts[lane] = mine;
    for (var half = SHARE / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (part < half) {
            of_parts[lane] = combine(of_parts[lane], of_parts[lane + half * STEP]);
        }
    }
    workgroupBarrier();
    let total = of_parts[lane - part * STEP];
    workgroupBarrier();
    return total;
}
#endif
