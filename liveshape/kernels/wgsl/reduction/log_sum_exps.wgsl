// A stage of the log-sum-exp of long rows: of parts of their elements, which lie `inner` apart, or of partial results.
// composable x: each element is loaded once.
#choice OF: elements, partials
// T: f32, f16
override WG: u32 = 256;

struct Params {
    rows: u32,
    length: u32,
    inner: u32,
    span: u32,
    parts: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;
#if OF == elements
@group(0) @binding(1) var<storage, read> x: array<T>;
#else
@group(0) @binding(1) var<storage, read> x: array<vec2<f32>>;
#endif
@group(0) @binding(2) var<uniform> params: Params;

#include reduction/log_sum_exp
#include reduction/across_threads
#include reduction/parts

fn element(at: u32) -> Total {
#if OF == elements
    return Total(f32(x[at]), 1.0);
#else
    return x[at];
#endif
}

#include reduction/row_totals

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
    if (unit < params.rows * params.parts && member_of(thread) == 0u) {
        out[unit] = total;
    }
}
