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
@group(0) @binding(2) var<uniform> params: Params;

fn store(at: u32, total: vec2<f32>) {
    let shifted = f32(x[at]) - total.x;
    if (LOG) {
        out[at] = TOut(shifted - log(total.y));
    } else {
        out[at] = TOut(exp(shifted) / total.y);
    }
}

#include reduction/log_sum_exp
#include reduction/across_threads
#include reduction/parts

fn element(at: u32) -> Total {
    return Total(f32(x[at]), 1.0);
}

#include reduction/row_totals

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = unit_of(group_index(group, grid), thread);
    let part = part_of(row, params.rows, params.length);
    let start = (part.unit / params.inner) * params.length * params.inner + part.unit % params.inner;
    let total = reduce_unit(thread, own_total(part, thread, start, params.inner));
    if (row >= params.rows) {
        return;
    }
    for (var j = member_of(thread); j < params.length; j += COOPERATING) {
        store(start + j * params.inner, total);
    }
}
