// sums[i] = the inclusive prefix sum of the counts of its span, in place; totals[span] = the sum of the whole span.
override WG: u32 = 256;

struct Params {
    count: u32,
    span: u32,
}
@group(0) @binding(0) var<storage, read_write> sums: array<i32>;
@group(0) @binding(1) var<storage, read_write> totals: array<i32>;

var<workgroup> held: array<i32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let span = group_index(group, grid);
    let start = span * params.span;
    if (start >= params.count) {
        return;
    }
    let end = min(start + params.span, params.count);
    var before = 0;
    for (var first = start; first < end; first += WG) {
        let i = first + thread;
        var total = 0;
        if (i < end) {
            total = sums[i];
        }
        held[thread] = total;
        for (var step = 1u; step < WG; step *= 2u) {
            workgroupBarrier();
            var below = 0;
            if (thread >= step) {
                below = held[thread - step];
            }
            workgroupBarrier();
            total += below;
            held[thread] = total;
        }
        workgroupBarrier();
        if (i < end) {
            sums[i] = before + total;
        }
        before += held[WG - 1u];
        workgroupBarrier();
    }
    if (thread == 0u) {
        totals[span] = before;
    }
}
