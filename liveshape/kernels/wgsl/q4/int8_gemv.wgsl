// 4-bit GEMV of one quantized row: a unit is four columns, UNIT_THREADS threads split its depth. A row of floats is
// quantized by every workgroup for itself, since a dispatch for that would take longer, and its sums are those of the
// quantized row to the last bit; the first weights are prefetched meanwhile. The RMSNorm scale may be applied in the
// epilogue.
// unchecked: columns and groups are held below the sizes that planning checked.
#choice ROW: quantized, floats
#choice NORM: none, rms
// T: f32, f16
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 256;
override SUBGROUP: u32 = 0;
#if ROW == floats
override DEPTH_GROUPS: u32 = 64; // groups of 32 places in the depth

const WORDS: u32 = DEPTH_GROUPS * 4; // of eight places
#endif
const PLACES: u32 = GROUP_UNITS;

#include reduction/across_threads
#if ROW == floats
@group(0) @binding(0) var<storage, read> x: array<vec4<T>>;
#include q4/layer
#include q4/nibble_bytes
#else
#include q4/int8_operands
#endif
#include q4/int8_columns

#if TOTAL == sums_and_squares
// The row is quantized before its RMSNorm: partial sums of four columns, and of the squares of the row, which the
// producer wrote beside it and which give the RMSNorm scale.
override EPS: f32 = 0.0;

struct Total {
    sums: vec4<f32>,
    squares: f32,
}

fn combine(a: Total, b: Total) -> Total {
    return Total(a.sums + b.sums, a.squares + b.squares);
}

fn plus_group(total: Total, four: Four, row: Places, of_row: vec4<f32>) -> Total {
    return Total(plus_bytes(total.sums, four, row, of_row), total.squares + of_row.w);
}

fn sums_of(total: Total) -> vec4<f32> {
    return total.sums * inverseSqrt(total.squares / f32(params.depth) + EPS);
}
#else
// Partial sums of four columns.
alias Total = vec4<f32>;

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

fn plus_group(total: Total, four: Four, row: Places, of_row: vec4<f32>) -> Total {
    return plus_bytes(total, four, row, of_row);
}

fn sums_of(total: Total) -> vec4<f32> {
    return total;
}
#endif

#include q4/epilogue
#include q4/epilogue_unit

#if ROW == floats
#include quantization/step

// Words, not vectors of them: two threads may not write components of one vector. Of eight places the even and the odd
// ones, or for weights of bytes the first and the last four.
var<workgroup> low_words: array<u32, WORDS>;
var<workgroup> high_words: array<u32, WORDS>;
var<workgroup> peaks: array<u32, WORDS>; // the bits of the largest magnitude of eight places

#if NORM == rms
// The RMSNorm of the row is quantized. Its weight lies behind the bias, or where that would be; its scale does not
// change the integers, and is applied to the sums in the epilogue.
override EPS: f32 = 0.0;

#include reduction/across_workgroup

fn input_four(i: u32) -> vec4<f32> {
    let at = select(0u, bias_columns(), BIAS) + i * 4u;
    return vec4<f32>(x[i]) * vec4<f32>(f32(bias[at]), f32(bias[at + 1u]), f32(bias[at + 2u]), f32(bias[at + 3u]));
}

fn squares_of(i: u32) -> f32 {
    let four = vec4<f32>(x[i]);
    return dot(four, four);
}

fn norm_scale(thread: u32, squares: f32) -> f32 {
    return inverseSqrt(workgroup_sum(thread, squares) / f32(params.depth) + EPS);
}
#else
// The row is quantized as it is.
fn input_four(i: u32) -> vec4<f32> {
    return vec4<f32>(x[i]);
}

fn squares_of(i: u32) -> f32 {
    return 0.0;
}

// What the sums are scaled by. It is a barrier for what the workgroup wrote before.
fn norm_scale(thread: u32, squares: f32) -> f32 {
    workgroupBarrier();
    return 1.0;
}
#endif

fn step_of_quantized(group: u32) -> Step {
    let first = group * 4u;
    return step_by(max(max(peaks[first], peaks[first + 1u]), max(peaks[first + 2u], peaks[first + 3u])));
}

fn quantized_word(a: vec4<f32>) -> u32 {
    return pack4xI8(vec4<i32>(round(a)));
}

// The scale of the RMSNorm.
fn quantize_row(thread: u32) -> f32 {
    var squares = 0.0;
    for (var i = thread; i < WORDS; i += WG) {
        let sizes = max(bits(input_four(i * 2u)), bits(input_four(i * 2u + 1u)));
        peaks[i] = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
        squares += squares_of(i * 2u) + squares_of(i * 2u + 1u);
    }
    let factor = norm_scale(thread, squares);
    for (var i = thread; i < WORDS; i += WG) {
        let inverse = step_of_quantized(i / 4u).inverse;
        let a = input_four(i * 2u) * inverse;
        let b = input_four(i * 2u + 1u) * inverse;
        if (BITS == 8u) {
            low_words[i] = quantized_word(a);
            high_words[i] = quantized_word(b);
        } else {
            low_words[i] = quantized_word(vec4<f32>(a.xz, b.xz));
            high_words[i] = quantized_word(vec4<f32>(a.yw, b.yw));
        }
    }
    workgroupBarrier();
    return factor;
}

fn total_of(words: vec4<u32>) -> i32 {
    return dot4I8Packed(words.x, ONES) + dot4I8Packed(words.y, ONES)
        + dot4I8Packed(words.z, ONES) + dot4I8Packed(words.w, ONES);
}

fn plus_quantized(mine: Total, four: Four, i: u32) -> Total {
    let first = i * 4u;
    let low = vec4<u32>(low_words[first], low_words[first + 1u], low_words[first + 2u], low_words[first + 3u]);
    let high = vec4<u32>(high_words[first], high_words[first + 1u], high_words[first + 2u], high_words[first + 3u]);
    var row = Places(low, high);
    if (BITS == 8u) {
        row = Places(vec4<u32>(low.x, high.x, low.y, high.y), vec4<u32>(low.z, high.z, low.w, high.w));
    }
    let step = step_of_quantized(i).size;
    let total = f32(total_of(low) + total_of(high));
    return plus_group(mine, four, row, vec4<f32>(step, 8.0 * total, 0.0, 0.0));
}
#endif

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = unit_of(group_index(group, grid), thread);
    let column = min(unit * 4u, params.columns - 1u);
    let member = member_of(thread);
    if (member == 0u) {
        prefetch_residual(0u, column);
    }
    var mine = Total();
#if ROW == floats
    var four = fetch(column, min(member, DEPTH_GROUPS - 1u));
    let factor = quantize_row(thread);
    for (var i = member; i < DEPTH_GROUPS; i += COOPERATING) {
        if (i != member) {
            four = fetch(column, i);
        }
        mine = plus_quantized(mine, four, i);
    }
#else
    let factor = 1.0;
    for (var i = member; i < groups(); i += COOPERATING) {
        let row = in_weight_order(x[i * 3u], x[i * 3u + 1u]);
        mine = plus_group(mine, fetch(column, i), row, bitcast<vec4<f32>>(x[i * 3u + 2u]));
    }
#endif
    let total = reduce_unit(thread, mine);
    store_unit(thread, unit, unit_of(0u, thread), member == 0u, sums_of(total) * factor);
}
