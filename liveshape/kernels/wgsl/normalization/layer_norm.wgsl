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
    units: u32,
    count: u32, // in vectors, as the share and the span
    parts: u32,
    share: u32,
    span: u32,
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

// Factors of a channel are one for all of its neighbours.
fn of_channel(factors: V_math, channel: u32) -> V_math {
    return select(factors, V_math(V_at(factors, channel % V_lanes)), CHANNELS);
}

fn normalized(row: u32, i: u32, element: V_math, mean: f32, scale: f32) -> V_math {
    var value = (element - mean) * scale;
    let channel = (row % params.channel_groups) * (params.count / params.span) + i / params.span;
    let place = select(i, channel / V_lanes, CHANNELS);
    if (WEIGHT) {
        value *= of_channel(V_math(weight[place]), channel);
    }
    if (BIAS) {
        value += of_channel(V_math(bias[place]), channel);
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

// What a thread has of the sum over a part, or of the sum of squares of what its elements are above the mean; where
// statistics of parts are known, over all of the row, by the squares around the mean of each (Chan).
fn own_sum(part: Part, thread: u32, squares: bool, mean: f32) -> f32 {
#if STAGE == results
    var sum = 0.0;
    for (var i = member_of(thread); i < params.parts; i += COOPERATING) {
        let own = statistics[i * params.units + part.unit];
        let count = f32(min(params.share, params.count - i * params.share) * V_lanes);
        let difference = own.x - mean;
        sum += select(own.x * count, own.y + difference * difference * count, squares);
    }
    return sum;
#else
    let start = part.unit * params.count;
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
#endif
}

fn each_part(part: Part, thread: u32) {
#if STAGE == parts
    let count = f32((part.last - part.first) * V_lanes);
#else
    let count = f32(params.count * V_lanes);
#endif
    let mean = reduce_unit(thread, own_sum(part, thread, false, 0.0)) / count;
    let squares = reduce_unit(thread, own_sum(part, thread, true, mean));
    if (!is_part(part)) {
        return;
    }
    let row = part.unit;
    let member = member_of(thread);
#if STAGE == parts
    if (member == 0u) {
        statistics[part.index] = vec2<f32>(mean, squares);
    }
#else
    let scale = inverseSqrt(squares / count + params.eps);
#if SAVED == statistics
    if (member == 0u && part.first == 0u) {
        mean_out[row] = TMean(mean);
        scale_out[row] = TMean(scale);
    }
#endif
    let start = row * params.count;
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
