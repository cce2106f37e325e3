// Sum reduction over the workgroup; every thread gets it. By shuffles inside of subgroups where there are such.
#if SUBGROUP
const GROUP_SHUFFLED: u32 = min(SUBGROUP, WG); // threads of a subgroup
const GROUP_SUBGROUPS: u32 = WG / GROUP_SHUFFLED; // whose partial sums meet in memory

var<workgroup> group_sums: array<f32, GROUP_SUBGROUPS>;

// The first half: `shared_sum` is known to every thread behind the next barrier, which may be for more than that.
fn share_sum(thread: u32, mine: f32) {
    var total = mine;
    for (var step = 1u; step < GROUP_SHUFFLED; step *= 2u) {
        total += subgroupShuffleXor(total, step);
    }
    if (thread % GROUP_SHUFFLED == 0u) {
        group_sums[thread / GROUP_SHUFFLED] = total;
    }
}

fn shared_sum() -> f32 {
    var total = group_sums[0];
    for (var i = 1u; i < GROUP_SUBGROUPS; i++) {
        total += group_sums[i];
    }
    return total;
}
#else
var<workgroup> group_sums: array<f32, WG>;

// The first half: `shared_sum` is known to every thread behind the next barrier, which may be for more than that.
fn share_sum(thread: u32, mine: f32) {
    group_sums[thread] = mine;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (thread < half) {
            group_sums[thread] += group_sums[thread + half];
        }
    }
}

fn shared_sum() -> f32 {
    return group_sums[0];
}
#endif

fn workgroup_sum(thread: u32, mine: f32) -> f32 {
    share_sum(thread, mine);
    workgroupBarrier();
    return shared_sum();
}
