// out = (x - mean) / sqrt(variance + eps) * weight + bias over each row, in f32; mean and 1 / sqrt are outputs too.
// Long rows come with their statistics.
#choice STATISTICS: own, given
// T: f32, f16
override WG: u32 = 256;
override SUBGROUP: u32 = 0;
override WEIGHT: bool = true;
override BIAS: bool = true;
override CHANNELS: bool = false; // a weight per channel of `span` neighbours (group norm), not per element of the row

struct Params {
    rows: u32,
    width: u32, // in vectors
    span: u32, // in vectors
    channel_groups: u32,
    eps: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<V>;
@group(0) @binding(1) var<storage, read_write> mean_out: array<TMean>;
@group(0) @binding(2) var<storage, read_write> scale_out: array<TMean>;
@group(0) @binding(3) var<storage, read> x: array<V>;
@group(0) @binding(4) var<storage, read> weight: array<V>;
@group(0) @binding(5) var<storage, read> bias: array<V>;
#if STATISTICS == given
@group(0) @binding(6) var<storage, read> means: array<f32>;
@group(0) @binding(7) var<storage, read> variances: array<f32>;
@group(0) @binding(8) var<uniform> params: Params;
#else
@group(0) @binding(6) var<uniform> params: Params;
#endif

fn store(row: u32, i: u32, mean: f32, scale: f32) {
    let at = row * params.width + i;
    var value = (V_math(x[at]) - mean) * scale;
    let channel = (row % params.channel_groups) * (params.width / params.span) + i / params.span;
    if (WEIGHT && CHANNELS) {
        value *= V_at(V_math(weight[channel / V_lanes]), channel % V_lanes);
    } else if (WEIGHT) {
        value *= V_math(weight[i]);
    }
    if (BIAS && CHANNELS) {
        value += V_at(V_math(bias[channel / V_lanes]), channel % V_lanes);
    } else if (BIAS) {
        value += V_math(bias[i]);
    }
    out[at] = V(value);
}

fn store_statistics(row: u32, mean: f32, scale: f32) {
    mean_out[row] = TMean(mean);
    scale_out[row] = TMean(scale);
}

#if STATISTICS == given
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, grid) * WG + thread;
    let row = i / params.width;
    if (row >= params.rows) {
        return;
    }
    let scale = inverseSqrt(variances[row] + params.eps);
    store(row, i % params.width, means[row], scale);
    if (i % params.width == 0u) {
        store_statistics(row, means[row], scale);
    }
}
#else
alias Total = f32;

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

#include reduction/across_threads

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = unit_of(group_index(group, grid), thread);
    let member = member_of(thread);
    let start = min(row, params.rows - 1u) * params.width;
    let count = f32(params.width * V_lanes);
    var sums = V_math(0);
    for (var i = member; i < params.width; i += COOPERATING) {
        sums += V_math(x[start + i]);
    }
    let mean = reduce_unit(thread, V_sum(sums)) / count;
    var squares = V_math(0);
    for (var i = member; i < params.width; i += COOPERATING) {
        let difference = V_math(x[start + i]) - mean;
        squares += difference * difference;
    }
    let scale = inverseSqrt(reduce_unit(thread, V_sum(squares)) / count + params.eps);
    if (row >= params.rows) {
        return;
    }
    if (member == 0u) {
        store_statistics(row, mean, scale);
    }
    for (var i = member; i < params.width; i += COOPERATING) {
        store(row, i, mean, scale);
    }
}
#endif
