// The entry of a kernel as common/each.wgsl has it, whose loops do not grow with its tensors. Where threads are few, a
// workgroup costs more than what its threads do once: each does it for a THREAD_RUN, which variant.py chooses.
override THREAD_RUN: u32 = 0;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
#if THREAD_RUN
    let first = group_index(group, grid) * WG * THREAD_RUN + thread;
    for (var i = first; i < min(first + WG * THREAD_RUN, params.count); i += WG) {
        each(i);
    }
#else
    let i = group_index(group, grid) * WG + thread;
    if (i < params.count) {
        each(i);
    }
#endif
}
