// Per workgroup the log-sum-exp of its span of a row: the highest score m, and the sum of exp(score - m).
override WG: u32 = 256;
override SUBGROUP: u32 = 0;
override SPAN: u32 = 4096;

struct Params {
    count: u32,
    rows: u32,
    spans: u32, // of a row
}
@group(0) @binding(0) var<storage, read_write> masses: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> scores: array<f32>;

alias Total = vec2<f32>;

fn combine(a: Total, b: Total) -> Total {
    let maximum = max(a.x, b.x);
    return Total(maximum, a.y * exp(a.x - maximum) + b.y * exp(b.x - maximum));
}

#include sampling/score
#include reduction/across_threads

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = group_index(group, grid);
    let row = index / params.spans;
    if (row >= params.rows) {
        return;
    }
    let span = index % params.spans;
    let start = row * params.count;
    let end = min((span + 1u) * SPAN, params.count);
    var mine = Total(MASKED_SCORE, 0.0);
    for (var i = span * SPAN + thread; i < end; i += WG) {
        let score = scores[start + i];
        if (score > mine.x) {
            mine = Total(score, mine.y * exp(mine.x - score) + 1.0);
        } else if (score > MASKED_SCORE) {
            mine.y += exp(score - mine.x);
        }
    }
    let total = reduce_unit(thread, mine);
    if (thread == 0u) {
        masses[index] = total;
    }
}
