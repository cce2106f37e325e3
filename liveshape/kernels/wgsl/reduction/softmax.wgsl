// Softmax or its LOG along a dimension whose elements lie `inner` apart, stable and in f32; or a stage of the log-sum-exp
// of long rows, of parts of their elements or of partial results.
// composable x: it may be read for its statistics, and once more.
// TIn: f32, f16
// TOut: f32, f16
override WG: u32 = 256;

struct Params {
    rows: u32,
    length: u32,
    inner: u32,
#if STAGE == parts
    span: u32,
    parts: u32,
#endif
}
#if STAGE == parts
@group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;
#else
// composable: each element is stored once.
override LOG: bool = false;

@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
#endif
#if OF == partials
@group(0) @binding(1) var<storage, read> x: array<vec2<f32>>;
#else
@group(0) @binding(1) var<storage, read> x: array<TIn>;
#endif
@group(0) @binding(2) var<uniform> params: Params;

#include reduction/log_sum_exp

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = unit_of(group_index(group, grid), thread);
    let part = part_of(unit, params.rows, params.length);
    let start = (part.unit / params.inner) * params.length * params.inner + part.unit % params.inner;
    let total = reduce_unit(thread, own_total(part, thread, start, params.inner));
#if STAGE == parts
    if (unit < params.rows * params.parts && member_of(thread) == 0u) {
        out[unit] = total;
    }
#else
    if (unit >= params.rows) {
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
#endif
}
