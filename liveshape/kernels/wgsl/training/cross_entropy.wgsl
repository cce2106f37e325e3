// Cross entropy of rows of scores: the loss of each row, and the gradient of the mean over `n_valid` of them.
// A row whose label is negative counts for nothing; one whose label lies past the row has no loss, which is NaN.
// T: f32, f16
override WG: u32 = 256;

struct Params {
    units: u32,
    count: u32,
    parts: u32,
    share: u32,
    n_valid: f32,
    not_a_number: f32,
}
@group(0) @binding(0) var<storage, read_write> losses: array<f32>;
@group(0) @binding(1) var<storage, read_write> gradient: array<T>;
@group(0) @binding(2) var<storage, read> x: array<T>;
@group(0) @binding(3) var<storage, read> labels: array<i32>;
#if STAGE == results
@group(0) @binding(4) var<storage, read> totals: array<vec2<f32>>;
#endif

fn element(start: u32, j: u32) -> f32 {
    return f32(x[start + j]);
}

#include reduction/log_sum_exp

fn each_part(part: Part, thread: u32) {
    let start = part.unit * params.count;
    let total = log_sum_exp(part, thread, start);
    if (!is_part(part)) {
        return;
    }
    let label = labels[part.unit];
    for (var j = part.first + member_of(thread); j < part.last; j += COOPERATING) {
        let hit = select(0.0, 1.0, i32(j) == label);
        let slope = (exp(element(start, j) - total.x) / total.y - hit) / params.n_valid;
        gradient[start + j] = T(select(slope, 0.0, label < 0));
    }
    if (part.first > 0u || member_of(thread) > 0u) {
        return;
    }
    var loss = 0.0;
    if (label >= i32(params.count)) {
        loss = params.not_a_number;
    } else if (label >= 0) {
        loss = (log(total.y) + (total.x - element(start, u32(label)))) / params.n_valid;
    }
    losses[part.unit] = loss;
}
