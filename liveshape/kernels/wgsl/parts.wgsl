// PARTS threads share one unit of work and combine what each of them found: parts_meet.wgsl says how. Neighbouring threads
// take parts of one unit (INNER), or the same part of neighbouring units, whichever reads neighbouring memory.
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
