// Per workgroup the best token of its span of a row: the highest logit, the first of equals and a NaN above all; or
// with SAMPLE the highest score plus Gumbel noise among the scores that reach the limit, which is a draw from their
// softmax. By row each draws that has a temperature, and takes its scores where it has any.
// T: f32, f16
override WG: u32 = 256;
override SPAN: u32 = 4096;
override SAMPLE: bool = false;
override TRUNCATED: bool = false;
#if SETTINGS == by_row
override PENALIZED: bool = false;
#endif

struct Params {
    count: u32,
    rows: u32,
    start: u32, // of the first row
    spans: u32, // of a row
#if SETTINGS == shared
    seed: u32,
    position: u32, // of the first row; each after it is one further
#endif
}
@group(0) @binding(0) var<storage, read_write> best: array<vec2<i32>>; // (key, token)
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<storage, read> limit: array<i32>;
#if SETTINGS == by_row
@group(0) @binding(3) var<storage, read> scores: array<f32>;
@group(0) @binding(4) var<storage, read> settings: array<i32>;
#endif

#include sampling/settings
#include sampling/higher_key
#include reduction/across_threads
#include common/float_keys
#include sampling/score
#include elementwise/random

// -log of an exponential variable. Its density is highest near 0, so that end must have the fine steps.
#if SETTINGS == by_row
fn gumbel(seed: u32, position: u32, token: u32) -> f32 {
    let uniform_draw = (f32(random(vec3<u32>(seed, position, token))) + 0.5) * 2.3283064e-10;
#else
fn gumbel(position: u32, token: u32) -> f32 {
    let uniform_draw = (f32(random(vec3<u32>(params.seed, position, token))) + 0.5) * 2.3283064e-10;
#endif
    let exponential = select(-log(1.0 - uniform_draw), uniform_draw + 0.5 * uniform_draw * uniform_draw, uniform_draw < 1e-3);
    return -log(exponential);
}

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
    let start = params.start + row * params.count;
    let end = min((span + 1u) * SPAN, params.count);
    var mine = NONE;
#if SETTINGS == by_row
    let own = settings_of(row);
    let draws = SAMPLE && own.temperature != 0.0;
    let limited = TRUNCATED && is_limited(own);
    let scored = draws || (PENALIZED && is_penalized(own));
    for (var i = span * SPAN + thread; i < end; i += WG) {
        var value = 0.0;
        if (scored) {
            value = scores[start + i];
        } else {
            value = f32(x[start + i]);
        }
        if (!draws) {
            mine = combine(mine, Total(key_of(value), i));
        } else if (value > MASKED_SCORE && (!limited || key_of(value) >= bitcast<u32>(limit[row]))) {
            mine = combine(mine, Total(key_of(value + gumbel(own.seed, own.position, i)), i));
        }
    }
#else
    for (var i = span * SPAN + thread; i < end; i += WG) {
        let value = f32(x[start + i]);
        if (!SAMPLE) {
            mine = combine(mine, Total(key_of(value), i));
        } else if (value > MASKED_SCORE && (!TRUNCATED || key_of(value) >= bitcast<u32>(limit[row]))) {
            mine = combine(mine, Total(key_of(value + gumbel(params.position + row, i)), i));
        }
    }
#endif
    let total = reduce_unit(thread, mine);
    if (thread == 0u) {
        best[index] = bitcast<vec2<i32>>(total);
    }
}
