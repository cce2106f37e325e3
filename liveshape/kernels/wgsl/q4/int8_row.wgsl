// The quantized row of a 4-bit GEMV: read where it lies, or a row of floats, or of its RMSNorm, that every workgroup
// quantizes for itself, since a dispatch for that would take longer; its sums are those of the quantized row to the last
// bit. The scale of an RMSNorm does not change the integers, and is applied to the sums.
#choice ROW: global, staged, rms
#if ROW == global
#include q4/int8_operands
#else
override DEPTH_GROUPS: u32 = 64; // groups of 32 places in the depth

const WORDS: u32 = DEPTH_GROUPS * 4; // of eight places

// T: f32, f16
@group(0) @binding(0) var<storage, read> x: array<vec4<T>>;
#include q4/layer
#include q4/nibble_bytes
#include quantization/step

// Words, not vectors of them: two threads may not write components of one vector. Of eight places the even and the odd
// ones, or for weights of bytes the first and the last four.
var<workgroup> low_words: array<u32, WORDS>;
var<workgroup> high_words: array<u32, WORDS>;
var<workgroup> peaks: array<u32, WORDS>; // the bits of the largest magnitude of eight places
var<private> row_scale: f32; // of the RMSNorm

#if ROW == rms
#include q4/row_norm
#endif

fn input_four(i: u32) -> vec4<f32> {
#if ROW == rms
    return vec4<f32>(x[i]) * norm_weight_four(i);
#else
    return vec4<f32>(x[i]);
#endif
}

fn squares_of(i: u32) -> f32 {
    let four = vec4<f32>(x[i]);
    return dot(four, four);
}

fn step_of_quantized(group: u32) -> Step {
    let first = group * 4u;
    return step_by(max(max(peaks[first], peaks[first + 1u]), max(peaks[first + 2u], peaks[first + 3u])));
}

fn quantized_word(a: vec4<f32>) -> u32 {
    return pack4xI8(vec4<i32>(round(a)));
}

fn load_row(thread: u32) {
    var squares = 0.0;
    for (var i = thread; i < WORDS; i += WG) {
        let sizes = max(bits(input_four(i * 2u)), bits(input_four(i * 2u + 1u)));
        peaks[i] = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
#if ROW == rms
        squares += squares_of(i * 2u) + squares_of(i * 2u + 1u);
#endif
    }
#if ROW == rms
    share_sum(thread, squares);
#endif
    workgroupBarrier();
#if ROW == rms
    row_scale = norm_scale();
#endif
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
}

fn sum_of_bytes(words: vec4<u32>) -> i32 {
    return dot4I8Packed(words.x, ONES) + dot4I8Packed(words.y, ONES)
        + dot4I8Packed(words.z, ONES) + dot4I8Packed(words.w, ONES);
}
#endif
