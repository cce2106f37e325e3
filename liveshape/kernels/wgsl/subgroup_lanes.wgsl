// Where each thread of a workgroup lies in its subgroup, and how large that is.
override WG: u32 = 256;

@group(0) @binding(0) var<storage, read_write> found: array<vec2<u32>>;

@compute @workgroup_size(WG)
fn main(
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
) {
    found[thread] = vec2<u32>(lane, size);
}
