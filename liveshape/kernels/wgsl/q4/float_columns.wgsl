// Eight places of the depth of four columns as they are loaded, and their products with a row of floats.
override SCALE_SPAN: u32 = 8; // how many neighbours of the depth surely share a scale: 8 or 1

#include q4/column_vectors

struct Eight {
    words: vec4<u32>,
    more: vec4<u32>, // of bytes, the other four
    scale: vec4<f32>,
    minimum: vec4<f32>,
    k: u32,
}

fn words_of(columns: vec4<u32>, first: u32) -> vec4<u32> {
    return vec4<u32>(word(columns.x, first), word(columns.y, first), word(columns.z, first), word(columns.w, first));
}

fn fetch(columns: vec4<u32>, i: u32) -> Eight {
    let words = words_of(columns, i * BITS);
    var more = words;
    if (BITS == 8u) {
        more = words_of(columns, i * BITS + 4u);
    }
    if (SCALE_SPAN == 8u) {
        return Eight(words, more, scale_four(columns.x, i * 8u), minimum_four(columns.x, i * 8u), i * 8u);
    }
    return Eight(words, more, vec4<f32>(1.0), vec4<f32>(), i * 8u);
}

// The same places dequantized, once for all rows.
struct Numbers {
    low: mat4x4<f32>,
    high: mat4x4<f32>,
    scale: vec4<f32>,
    minimum: vec4<f32>,
    k: u32,
}

fn numbers_of(eight: Eight, column: u32) -> Numbers {
    let words = eight.words;
    let more = eight.more;
    var low = mat4x4<f32>(low_codes(words.x), low_codes(words.y), low_codes(words.z), low_codes(words.w));
    var high = mat4x4<f32>(
        high_codes(words.x, more.x), high_codes(words.y, more.y),
        high_codes(words.z, more.z), high_codes(words.w, more.w),
    );
    if (SCALE_SPAN == 1u) {
        low = transpose(dequantized_each(transpose(low), column, eight.k));
        high = transpose(dequantized_each(transpose(high), column, eight.k + 4u));
    }
    return Numbers(low, high, eight.scale, eight.minimum, eight.k);
}

fn plus_row(sums: vec4<f32>, numbers: Numbers, row: u32) -> vec4<f32> {
    let existing = min(row, params.rows - 1u);
    let a = row_four(existing, numbers.k);
    let b = row_four(existing, numbers.k + 4u);
    let scaled = fma(plus_product(a * numbers.low, b, numbers.high), numbers.scale, sums);
    if (MINIMA && SCALE_SPAN == 8u) {
        let pairs = a + b;
        return fma(vec4<f32>((pairs.x + pairs.y) + (pairs.z + pairs.w)), numbers.minimum, scaled);
    }
    return scaled;
}
