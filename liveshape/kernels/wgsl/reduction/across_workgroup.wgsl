// Sum reduction over the workgroup; every thread gets it. By shuffles inside of subgroups where there are such.
#if SUBGROUP
const GROUP_SHUFFLED: u32 = min(SUBGROUP, WG); // threads of a subgroup
const GROUP_SUMS: u32 = WG / GROUP_SHUFFLED; // those of subgroups meet in memory
#else
const GROUP_SUMS: u32 = WG;
#endif

var<workgroup> group_sums: array<f32, GROUP_SUMS>;

// The first half: `shared_sum` is known to every thread behind the next barrier, which may be for more than that.
fn share_sum(thread: u32, mine: f32) {
#if SUBGROUP
    var total = mine;
    for (var step = 1u; step < GROUP_SHUFFLED; step *= 2u) {
        total += subgroupShuffleXor(total, step);
    }
    if (thread % GROUP_SHUFFLED == 0u) {
        group_sums[thread / GROUP_SHUFFLED] = total;
    }
#else
    group_sums[thread] = mine;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (thread < half) {
            group_sums[thread] += group_sums[thread + half];
        }
    }
#endif
}

fn shared_sum() -> f32 {
    var total = group_sums[0];
#if SUBGROUP
    for (var i = 1u; i < GROUP_SUMS; i++) {
        total += group_sums[i];
    }
#endif
    return total;
}

fn workgroup_sum(thread: u32, mine: f32) -> f32 {
    share_sum(thread, mine);
    workgroupBarrier();
    return shared_sum();
}
