// The entry of a kernel whose threads work together: `each_group` gets the number of its workgroup, however the grid folds.
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    each_group(group_index(group, grid), thread);
}
