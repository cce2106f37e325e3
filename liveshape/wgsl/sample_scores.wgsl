// The scores of one row of logits.
// T: f32, f16
override WG: u32 = 256;

struct Params {
    count: u32,
    start: u32, // of the row
    temperature: f32,
}
@group(0) @binding(0) var<storage, read_write> scores: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<uniform> params: Params;

// include score

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, grid) * WG + lane;
    if (i < params.count) {
        scores[i] = score_of(f32(x[params.start + i]), params.temperature);
    }
}
