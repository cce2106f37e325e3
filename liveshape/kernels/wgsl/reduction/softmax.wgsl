// Softmax or its LOG along a dimension whose elements lie `inner` apart, stable and in f32.
// composable x: it may be read for its statistics, and once more.
// composable: each element is stored once.
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

fn total_at(start: u32, j: u32) -> Total {
    return Total(f32(x[start + j * params.inner]), 1.0);
}

#include reduction/log_sum_exp
#include reduction/own_total

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = unit_of(group_index(group, grid), thread);
    let read = min(row, params.rows - 1u);
    let start = (read / params.inner) * params.length * params.inner + read % params.inner;
    let total = reduce_unit(thread, own_total(thread, start, 0u, params.length));
    if (row >= params.rows) {
        return;
    }
    for (var j = member_of(thread); j < params.length; j += COOPERATING) {
        let at = start + j * params.inner;
        let shifted = f32(x[at]) - total.x;
        if (LOG) {
            out[at] = TOut(shifted - log(total.y));
        } else {
            out[at] = TOut(exp(shifted) / total.y);
        }
    }
}
