// The total of a unit's parts, known to each of its threads, where neighbours hand each other what they have. Only where
// a unit's threads are of several subgroups do these meet in memory.
const BESIDE: u32 = clamp(SUBGROUP / STEP, 1u, SHARE); // parts of a unit in a subgroup
const APART: u32 = SHARE / BESIDE;
const MET: u32 = WG / BESIDE;

// include parts_handed

var<workgroup> of_parts: array<Total, MET>;

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
