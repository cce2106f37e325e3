// Cross entropy of rows of scores: the loss of each row, and the gradient of the mean over `n_valid` of them.
// A row whose label is negative counts for nothing; one whose label lies past the row has no loss, which is NaN.
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
@group(0) @binding(4) var<uniform> params: Params;

#include reduction/log_sum_exp
#include reduction/across_threads

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = unit_of(group_index(group, grid), thread);
    let start = min(row, params.rows - 1u) * params.length;
    var mine = EMPTY;
    for (var j = member_of(thread); j < params.length; j += COOPERATING) {
        mine = combine(mine, Total(f32(x[start + j]), 1.0));
    }
    let total = reduce_unit(thread, mine);
    if (row >= params.rows) {
        return;
    }
    let label = labels[row];
    for (var j = member_of(thread); j < params.length; j += COOPERATING) {
        let hit = select(0.0, 1.0, i32(j) == label);
        let slope = (exp(f32(x[start + j]) - total.x) / total.y - hit) / params.n_valid;
        gradient[start + j] = T(select(slope, 0.0, label < 0));
    }
    if (member_of(thread) == 0u) {
        var loss = 0.0;
        if (label >= i32(params.length)) {
            loss = params.not_a_number;
        } else if (label >= 0) {
            loss = (log(total.y) + (total.x - f32(x[start + u32(label)]))) / params.n_valid;
        }
        losses[row] = loss;
    }
}
