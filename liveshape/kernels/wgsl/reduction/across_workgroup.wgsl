// The sum over the workgroup of what each of its threads has; every thread gets it.
#if SUBGROUP
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
#else
var<workgroup> sums: array<f32, WG>;

fn row_total(lane: u32, mine: f32) -> f32 {
    sums[lane] = mine;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            sums[lane] += sums[lane + half];
        }
    }
    workgroupBarrier();
    return sums[0];
}
#endif
