// Cross entropy of rows of scores: the loss of each row, and the gradient of the mean over `n_valid` of them.
// A row whose label is negative counts for nothing; one whose label lies past the row has no loss, which is NaN.
// Long rows come with their log-sum-exp.
#choice TOTALS: own, given
// T: f32, f16
override WG: u32 = 256;

struct Params {
    rows: u32,
    length: u32,
    n_valid: f32,
    not_a_number: f32,
}
@group(0) @binding(0) var<storage, read_write> losses: array<f32>;
@group(0) @binding(1) var<storage, read_write> gradient: array<T>;
@group(0) @binding(2) var<storage, read> x: array<T>;
@group(0) @binding(3) var<storage, read> labels: array<i32>;
#if TOTALS == given
@group(0) @binding(4) var<storage, read> totals: array<vec2<f32>>;
@group(0) @binding(5) var<uniform> params: Params;
#else
@group(0) @binding(4) var<uniform> params: Params;
#endif

fn store_slope(row: u32, j: u32, label: i32, total: vec2<f32>) {
    let at = row * params.length + j;
    let hit = select(0.0, 1.0, i32(j) == label);
    let slope = (exp(f32(x[at]) - total.x) / total.y - hit) / params.n_valid;
    gradient[at] = T(select(slope, 0.0, label < 0));
}

fn store_loss(row: u32, label: i32, total: vec2<f32>) {
    var loss = 0.0;
    if (label >= i32(params.length)) {
        loss = params.not_a_number;
    } else if (label >= 0) {
        loss = (log(total.y) + (total.x - f32(x[row * params.length + u32(label)]))) / params.n_valid;
    }
    losses[row] = loss;
}

#if TOTALS == given
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, grid) * WG + thread;
    let row = i / params.length;
    if (row >= params.rows) {
        return;
    }
    store_slope(row, i % params.length, labels[row], totals[row]);
    if (i % params.length == 0u) {
        store_loss(row, labels[row], totals[row]);
    }
}
#else
fn total_at(start: u32, j: u32) -> Total {
    return Total(f32(x[start + j]), 1.0);
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
    let start = min(row, params.rows - 1u) * params.length;
    let total = reduce_unit(thread, own_total(thread, start, 0u, params.length));
    if (row >= params.rows) {
        return;
    }
    let label = labels[row];
    for (var j = member_of(thread); j < params.length; j += COOPERATING) {
        store_slope(row, j, label, total);
    }
    if (member_of(thread) == 0u) {
        store_loss(row, label, total);
    }
}
#endif
