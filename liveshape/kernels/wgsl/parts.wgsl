// PARTS threads share one unit of work and combine what each of them found. The includer says what a `Total` is and how
// two of them `combine`. Neighbouring threads take parts of one unit (INNER), or the same part of neighbouring units,
// whichever reads neighbouring memory.
override PARTS: u32 = 1;
override INNER: bool = true;

const SHARE: u32 = min(PARTS, WG); // a device may clamp the workgroup below PARTS
const ACROSS: u32 = WG / SHARE;
const STEP: u32 = select(ACROSS, 1u, INNER);

var<workgroup> of_parts: array<Total, WG>;

fn part_of(lane: u32) -> u32 {
    return (lane / STEP) % SHARE;
}

fn unit_of(group: u32, lane: u32) -> u32 {
    return group * ACROSS + select(lane % ACROSS, lane / SHARE, INNER);
}

// The total of the unit's parts, known to each of its threads.
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
