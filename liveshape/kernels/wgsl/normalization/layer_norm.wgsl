// out = (x - mean) / sqrt(variance + eps) * weight + bias over each row, in f32; mean and 1 / sqrt are outputs too where
// they are SAVED. Long rows go in two stages: the statistics of PARTS, then RESULTS by these.
// composable x: it may be read for its statistics, and once more.
// composable: each vector is stored once.
#choice STAGE: rows, parts, results
#choice SAVED: statistics, nothing
// T: f32, f16
override WG: u32 = 256;
override SUBGROUP: u32 = 0;
override WEIGHT: bool = true;
override BIAS: bool = true;
override CHANNELS: bool = false; // a weight per channel of `span` neighbours (group norm), not per element of the row
override REGISTER_VECTORS: u32 = 0; // of a thread, which hold what it has of the row; 0: it reads that again

struct Params {
    rows: u32,
    width: u32, // in vectors
    parts: u32, // of a row
    share: u32, // of a part, in vectors
    span: u32, // in vectors
    channel_groups: u32,
    eps: f32,
}
#if STAGE == parts
// Of each part its mean, and the sum of the squares of what its elements are above that.
@group(0) @binding(0) var<storage, read_write> statistics: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> x: array<V>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<V>;
@group(0) @binding(1) var<storage, read> x: array<V>;
@group(0) @binding(2) var<storage, read> weight: array<V>;
@group(0) @binding(3) var<storage, read> bias: array<V>;
#if SAVED == statistics
@group(0) @binding(4) var<storage, read_write> mean_out: array<TMean>;
@group(0) @binding(5) var<storage, read_write> scale_out: array<TMean>;
#endif
#if STAGE == results
@group(0) @binding(6) var<storage, read> statistics: array<vec2<f32>>;
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
#endif

alias Total = f32;

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

#include reduction/parts

#if REGISTER_VECTORS
var<private> registers: array<V_math, REGISTER_VECTORS>;
#endif

// What a thread has of the sum over a part, or of the sum of squares of what its elements are above the mean.
fn own_sum(part: Part, thread: u32, squares: bool, mean: f32) -> f32 {
    let start = part.unit * params.width;
    let first = part.first + member_of(thread);
    var sums = V_math(0);
#if REGISTER_VECTORS
    for (var h = 0u; h < REGISTER_VECTORS; h++) {
        let i = first + h * COOPERATING;
        if (i < part.last) {
            if (!squares) {
                registers[h] = V_math(x[start + i]);
            }
            let value = registers[h] - mean;
            sums += select(value, value * value, squares);
        }
    }
#else
    for (var i = first; i < part.last; i += COOPERATING) {
        let value = V_math(x[start + i]) - mean;
        sums += select(value, value * value, squares);
    }
#endif
    return V_sum(sums);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = unit_of(group_index(group, grid), thread);
    let part = part_of(unit, params.rows, params.width);
    let member = member_of(thread);
    let row = part.unit;
#if STAGE == results
    // A mean of means, and the squares around it from those around each (Chan).
    var sums = 0.0;
    for (var i = member; i < params.parts; i += COOPERATING) {
        let vectors = min(params.share, params.width - i * params.share);
        sums += statistics[i * params.rows + row].x * f32(vectors);
    }
    let mean = reduce_unit(thread, sums) / f32(params.width);
    var own_squares = 0.0;
    for (var i = member; i < params.parts; i += COOPERATING) {
        let vectors = min(params.share, params.width - i * params.share);
        let own = statistics[i * params.rows + row];
        let difference = own.x - mean;
        own_squares += own.y + difference * difference * f32(vectors * V_lanes);
    }
    let squares = reduce_unit(thread, own_squares);
#else
    let mean = reduce_unit(thread, own_sum(part, thread, false, 0.0)) / f32((part.last - part.first) * V_lanes);
    let squares = reduce_unit(thread, own_sum(part, thread, true, mean));
#endif
    if (unit >= params.rows * params.parts) {
        return;
    }
#if STAGE == parts
    if (member == 0u) {
        statistics[unit] = vec2<f32>(mean, squares);
    }
#else
    let scale = inverseSqrt(squares / f32(params.width * V_lanes) + params.eps);
#if SAVED == statistics
    if (member == 0u && part.first == 0u) {
        mean_out[row] = TMean(mean);
        scale_out[row] = TMean(scale);
    }
#endif
    let start = row * params.width;
    let first = part.first + member;
#if REGISTER_VECTORS
    for (var h = 0u; h < REGISTER_VECTORS; h++) {
        let i = first + h * COOPERATING;
        if (i < part.last) {
            out[start + i] = V(normalized(row, i, registers[h], mean, scale));
        }
    }
#else
    for (var i = first; i < part.last; i += COOPERATING) {
        out[start + i] = V(normalized(row, i, V_math(x[start + i]), mean, scale));
    }
#endif
#endif
}
