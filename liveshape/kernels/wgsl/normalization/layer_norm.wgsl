// out = (x - mean) / sqrt(variance + eps) * weight + bias over each row, in f32; mean and 1 / sqrt are outputs too where
// they are SAVED. Long rows come with the statistics of PARTS that workgroups have of them.
// composable x: it may be read for its statistics, and once more.
// composable: each vector is stored once.
#choice STATISTICS: own, parts
#choice SAVED: statistics, nothing
// T: f32, f16
override WG: u32 = 256;
override SUBGROUP: u32 = 0;
override WEIGHT: bool = true;
override BIAS: bool = true;
override CHANNELS: bool = false; // a weight per channel of `span` neighbours (group norm), not per element of the row
override REGISTER_VECTORS: u32 = 0; // of a thread, which hold its part of the row; 0: it reads them again

struct Params {
    rows: u32,
    width: u32, // in vectors
    span: u32, // in vectors
    channel_groups: u32,
    eps: f32,
#if STATISTICS == parts
    parts: u32, // of a row
#endif
}
@group(0) @binding(0) var<storage, read_write> out: array<V>;
@group(0) @binding(1) var<storage, read> x: array<V>;
@group(0) @binding(2) var<storage, read> weight: array<V>;
@group(0) @binding(3) var<storage, read> bias: array<V>;
#if SAVED == statistics
@group(0) @binding(4) var<storage, read_write> mean_out: array<TMean>;
@group(0) @binding(5) var<storage, read_write> scale_out: array<TMean>;
#if STATISTICS == parts
@group(0) @binding(6) var<storage, read> statistics: array<vec2<f32>>;
@group(0) @binding(7) var<uniform> params: Params;
#else
@group(0) @binding(6) var<uniform> params: Params;
#endif
#else
#if STATISTICS == parts
@group(0) @binding(4) var<storage, read> statistics: array<vec2<f32>>;
@group(0) @binding(5) var<uniform> params: Params;
#else
@group(0) @binding(4) var<uniform> params: Params;
#endif
#endif

fn normalized(row: u32, i: u32, element: V_math, mean: f32, scale: f32) -> V_math {
    var value = (element - mean) * scale;
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
    return value;
}

fn save(row: u32, mean: f32, scale: f32) {
#if SAVED == statistics
    mean_out[row] = TMean(mean);
    scale_out[row] = TMean(scale);
#endif
}

#if STATISTICS == parts
#include reduction/across_workgroup

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, grid);
    if (i >= params.rows * params.parts) {
        return;
    }
    let row = i / params.parts;
    let span = WG * REGISTER_VECTORS;
    let count = f32(params.width * V_lanes);
    // A mean of means, and the squares around it from those around each (Chan).
    var sums = 0.0;
    for (var part = thread; part < params.parts; part += WG) {
        sums += statistics[row * params.parts + part].x * f32(min(span, params.width - part * span));
    }
    let mean = workgroup_sum(thread, sums) / f32(params.width);
    var squares = 0.0;
    for (var part = thread; part < params.parts; part += WG) {
        let own = statistics[row * params.parts + part];
        let difference = own.x - mean;
        squares += own.y + difference * difference * f32(min(span, params.width - part * span) * V_lanes);
    }
    workgroupBarrier();
    let scale = inverseSqrt(workgroup_sum(thread, squares) / count + params.eps);
    let begin = i % params.parts * span;
    if (thread == 0u && begin == 0u) {
        save(row, mean, scale);
    }
    for (var j = begin + thread; j < min(begin + span, params.width); j += WG) {
        let at = row * params.width + j;
        out[at] = V(normalized(row, j, V_math(x[at]), mean, scale));
    }
}
#else
alias Total = f32;

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

#include reduction/across_threads

#if REGISTER_VECTORS
var<private> registers: array<V_math, REGISTER_VECTORS>;
#endif

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
#if REGISTER_VECTORS
    for (var h = 0u; h < REGISTER_VECTORS; h++) {
        let i = member + h * COOPERATING;
        if (i < params.width) {
            registers[h] = V_math(x[start + i]);
            sums += registers[h];
        }
    }
#else
    for (var i = member; i < params.width; i += COOPERATING) {
        sums += V_math(x[start + i]);
    }
#endif
    let mean = reduce_unit(thread, V_sum(sums)) / count;
    var squares = V_math(0);
#if REGISTER_VECTORS
    for (var h = 0u; h < REGISTER_VECTORS; h++) {
        if (member + h * COOPERATING < params.width) {
            let difference = registers[h] - mean;
            squares += difference * difference;
        }
    }
#else
    for (var i = member; i < params.width; i += COOPERATING) {
        let difference = V_math(x[start + i]) - mean;
        squares += difference * difference;
    }
#endif
    let scale = inverseSqrt(reduce_unit(thread, V_sum(squares)) / count + params.eps);
    if (row >= params.rows) {
        return;
    }
    if (member == 0u) {
        save(row, mean, scale);
    }
#if REGISTER_VECTORS
    for (var h = 0u; h < REGISTER_VECTORS; h++) {
        let i = member + h * COOPERATING;
        if (i < params.width) {
            out[start + i] = V(normalized(row, i, registers[h], mean, scale));
        }
    }
#else
    for (var i = member; i < params.width; i += COOPERATING) {
        out[start + i] = V(normalized(row, i, V_math(x[start + i]), mean, scale));
    }
#endif
}
#endif
