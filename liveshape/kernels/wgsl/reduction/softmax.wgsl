// Softmax or its LOG along a dimension whose elements lie `inner` apart, stable and in f32.
// TIn: f32, f16
// TOut: f32, f16
override WG: u32 = 256;
override LOG: bool = false;

struct Params {
    rows: u32,
    length: u32,
    inner: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> x: array<TIn>;
@group(0) @binding(2) var<uniform> params: Params;

#include reduction/log_sum_exp
#include reduction/across_threads

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = unit_of(group_index(group, grid), thread);
    let live = min(row, params.rows - 1u);
    let start = (live / params.inner) * params.length * params.inner + live % params.inner;
    var mine = EMPTY;
    for (var j = member_of(thread); j < params.length; j += COOPERATING) {
        mine = combine(mine, Total(f32(x[start + j * params.inner]), 1.0));
    }
    let total = reduce_unit(thread, mine);
    if (row >= params.rows) {
        return;
    }
    for (var j = member_of(thread); j < params.length; j += COOPERATING) {
        let shifted = f32(x[start + j * params.inner]) - total.x;
        if (LOG) {
            out[start + j * params.inner] = TOut(shifted - log(total.y));
        } else {
            out[start + j * params.inner] = TOut(exp(shifted) / total.y);
        }
    }
}
