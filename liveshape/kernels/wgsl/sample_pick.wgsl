// The best of what the workgroups found.
override WG: u32 = 256;

struct Params {
    spans: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<i32>;
@group(0) @binding(1) var<storage, read> best: array<vec2<i32>>;
@group(0) @binding(2) var<uniform> params: Params;

// include best
// include parts
// include float_keys

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    var mine = NONE;
    for (var i = lane; i < params.spans; i += WG) {
        mine = combine(mine, bitcast<vec2<u32>>(best[i]));
    }
    let total = across_parts(lane, mine);
    if (lane == 0u && group_index(group, grid) == 0u) {
        out[0] = i32(total.y);
    }
}
