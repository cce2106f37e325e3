// The sum over the workgroup of what each of its lanes has; every lane gets it.
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
