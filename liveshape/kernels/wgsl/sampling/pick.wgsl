// Per workgroup the best of what was found in a row.
override WG: u32 = 256;

struct Params {
    rows: u32,
    spans: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<i32>;
@group(0) @binding(1) var<storage, read> best: array<vec2<i32>>;

#include sampling/higher_key
#include reduction/across_threads
#include common/float_keys

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = group_index(group, grid);
    if (row >= params.rows) {
        return;
    }
    var mine = NONE;
    for (var i = thread; i < params.spans; i += WG) {
        mine = combine(mine, bitcast<vec2<u32>>(best[row * params.spans + i]));
    }
    let total = reduce_unit(thread, mine);
    if (thread == 0u) {
        out[row] = i32(total.y);
    }
}
