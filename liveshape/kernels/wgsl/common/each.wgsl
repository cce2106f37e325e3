// The entry of a kernel that does the same `each` time, `params.count` times.
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, grid) * WG + thread;
    if (i < params.count) {
        each(i);
    }
}
