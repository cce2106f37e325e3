// For each block of x, the scale and the zero point of a range of integers; a workgroup takes ROWS blocks, because the
// zero points of four may be the bytes of one word.
#choice ZERO_POINTS: packed, unpacked
// T: f32, f16
// TScale: f32, f16
override WG: u32 = 128;
override ROWS: u32 = 4;
override MAPPING: u32 = 0;

const ASYMMETRIC = 0u;
const SYMMETRIC = 1u;
const NO_CLIPPING = 2u; // symmetric, with a scale that either end of the range can reach
const CLOSER_END = 3u; // asymmetric, with the zero point from the end of the range that it meets more exactly

struct Params {
    units: u32, // blocks
    count: u32, // vectors of a block
    kept_rank: u32,
    reduced_rank: u32,
    low: f32, // the range of the integers
    high: f32,
    eps: f32, // the smallest scale
    middle: f32, // the zero point of a symmetric range
    sizes: array<vec4<u32>, 4>,
    strides: array<vec4<u32>, 4>,
}
@group(0) @binding(0) var<storage, read_write> scale: array<TScale>;
#if ZERO_POINTS == unpacked
// TZero: i32, f32, f16
@group(0) @binding(1) var<storage, read_write> zero_point: array<TZero>;
#else
@group(0) @binding(1) var<storage, read_write> zero_point: array<u32>;
#include common/bytes
#endif
@group(0) @binding(2) var<storage, read> x: array<V>;

// Of each block: the range of its values, which zero always belongs to, and the bits of the largest magnitude, because
// min and max may drop a NaN.
struct Total {
    least: vec4<f32>,
    most: vec4<f32>,
    largest: vec4<u32>,
}

fn combine(a: Total, b: Total) -> Total {
    return Total(min(a.least, b.least), max(a.most, b.most), max(a.largest, b.largest));
}

#include reduction/across_threads
#include reduction/reduced_walk

fn step_of(least: f32, most: f32) -> f32 {
    if (MAPPING == SYMMETRIC) {
        return max(-least, most) / ((params.high - params.low) / 2.0);
    }
    if (MAPPING == NO_CLIPPING) {
        return max(least / params.low, most / params.high);
    }
    return (most - least) / (params.high - params.low);
}

fn zero_of(least: f32, most: f32, step: f32) -> f32 {
    if (MAPPING == SYMMETRIC || MAPPING == NO_CLIPPING) {
        return params.middle;
    }
    let below = least / step;
    if (MAPPING == ASYMMETRIC) {
        return clamp(params.low - round(below), params.low, params.high);
    }
    let above = most / step;
    let by_low = (params.low + below) + (params.high + above) > 0.0;
    return round(clamp(select(params.high - above, params.low - below, by_low), params.low, params.high));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let first = group_index(group, grid) * ROWS;
    var starts = vec4<u32>();
    for (var j = 0u; j < ROWS; j++) {
        starts[j] = start_of(min(first + j, params.units - 1u));
    }
    var mine = Total();
    for (var i = thread; i < params.count; i += WG) {
        let place = walk(i);
        for (var j = 0u; j < ROWS; j++) {
            let four = V_math(x[starts[j] + place]);
            for (var k = 0u; k < V_lanes; k++) {
                let value = V_at(four, k);
                mine.least[j] = min(mine.least[j], value);
                mine.most[j] = max(mine.most[j], value);
                mine.largest[j] = max(mine.largest[j], bitcast<u32>(value) & 0x7fffffffu);
            }
        }
    }
    var total = reduce_unit(thread, mine);
    if (thread > 0u || first >= params.units) {
        return;
    }
    var zeros = vec4<f32>();
    for (var j = 0u; j < ROWS; j++) {
        let step = TScale(max(step_of(total.least[j], total.most[j]), params.eps));
        zeros[j] = zero_of(total.least[j], total.most[j], f32(step));
        let row = first + j;
        if (row < params.units) {
            scale[row] = step;
            if (total.largest[j] > 0x7f800000u) {
                scale[row] = TScale(bitcast<f32>(total.largest[j]));
            }
#if ZERO_POINTS == unpacked
            zero_point[row] = TZero(zeros[j]);
#endif
        }
    }
#if ZERO_POINTS == packed
    zero_point[first / 4u] = packed(vec4<i32>(zeros));
#endif
}
