// The total of a unit's parts, known to each of its threads. The includer says what a `Total` is and how two `combine`.
var<workgroup> of_parts: array<Total, WG>;

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
