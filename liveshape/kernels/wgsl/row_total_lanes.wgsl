// The sum over the workgroup of what each of its lanes has, where neighbours hand each other what they have; every lane
// gets it.
const TELLING: u32 = min(SUBGROUP, WG); // that hand each other values
const MEETING: u32 = WG / TELLING; // in memory

var<workgroup> sums: array<f32, MEETING>;

fn row_total(lane: u32, mine: f32) -> f32 {
    var total = mine;
    for (var step = 1u; step < TELLING; step *= 2u) {
        total += subgroupShuffleXor(total, step);
    }
    if (lane % TELLING == 0u) {
        sums[lane / TELLING] = total;
    }
    workgroupBarrier();
    total = sums[0];
    for (var i = 1u; i < MEETING; i++) {
        total += sums[i];
    }
    return total;
}
