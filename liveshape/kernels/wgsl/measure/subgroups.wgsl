// The lane of each thread of a workgroup in its subgroup, and how many neighbours, itself among them, its shuffles reach.
override WG: u32 = 256;

@group(0) @binding(0) var<storage, read_write> found: array<vec2<u32>>;

@compute @workgroup_size(WG)
fn main(
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
) {
    var reach = 1u;
    for (var step = 1u; step < size; step *= 2u) {
        let neighbour = subgroupShuffleXor(thread, step);
        reach = select(reach, 2u * step, reach == step && neighbour == (thread ^ step));
    }
    found[thread] = vec2<u32>(lane, reach);
}
