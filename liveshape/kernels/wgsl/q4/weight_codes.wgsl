// The nibbles or bytes of the weight as floats.
override COLUMN_ALIGNED: bool = true; // whether a column's nibbles begin at a word
override DEPTH_ALIGNED: bool = true; // whether the depth is a multiple of 8

fn word_at(i: u32) -> u32 {
    return weight[i / 4u][i % 4u];
}

// Four bytes of a column, from one of them on.
fn word(column: u32, first: u32) -> u32 {
    let byte = column * params.column_bytes + first;
    // The words after a tensor's last one hold nothing of the column, and are not there.
    let last = params.weight_words - 1u;
    var at = byte / 4u;
    if (!DEPTH_ALIGNED) {
        at = min(at, last);
    }
    let low = word_at(at);
    let shift = byte % 4u * 8u;
    if (COLUMN_ALIGNED || shift == 0u) {
        return low;
    }
    return (low >> shift) | (word_at(min(at + 1u, last)) << (32u - shift));
}

fn in_order(eight: u32) -> u32 {
    if (HIGH_FIRST) {
        return ((eight & 0x0f0f0f0fu) << 4u) | ((eight >> 4u) & 0x0f0f0f0fu);
    }
    return eight;
}

#include q4/nibbles

// Bytes with a sign, by the same trick.
fn four_of_bytes(bytes: u32) -> vec4<f32> {
    let lifted = bytes ^ 0x80808080u;
    let halves = vec4<u32>(lifted, lifted, lifted >> 16u, lifted >> 16u);
    let masked = (halves & vec4<u32>(0xffu, 0xff00u, 0xffu, 0xff00u)) | vec4<u32>(0x4b000000u);
    return fma(
        bitcast<vec4<f32>>(masked),
        vec4<f32>(1.0, 0.00390625, 1.0, 0.00390625),
        vec4<f32>(-8388736.0, -32896.0, -8388736.0, -32896.0),
    );
}

// Eight neighbours of a column: nibbles of a word, or bytes of that and of one more.
fn low_codes(word: u32) -> vec4<f32> {
    if (BITS == 8u) {
        return four_of_bytes(word);
    }
    return four_of(in_order(word));
}

fn high_codes(word: u32, more: u32) -> vec4<f32> {
    if (BITS == 8u) {
        return four_of_bytes(more);
    }
    return four_of(in_order(word) >> 16u);
}

// The word with four neighbours of a column, from place k of the depth on, a multiple of 4.
fn four_at(column: u32, k: u32) -> u32 {
    return word(column, select(k / 8u * 4u, k, BITS == 8u));
}

// And what they are as integers.
fn codes_of(bytes: u32, k: u32) -> vec4<f32> {
    if (BITS == 8u) {
        return four_of_bytes(bytes);
    }
    return four_of(in_order(bytes) >> (k % 8u * 4u));
}

// Integers, dequantized.
fn dequantized(codes: vec4<f32>, scale: vec4<f32>, minimum: vec4<f32>) -> vec4<f32> {
    if (MINIMA) {
        return fma(codes, scale, minimum);
    }
    return codes * scale;
}

fn dequantized_at(codes: vec4<f32>, column: u32, k: u32) -> vec4<f32> {
    let existing = min(k, params.depth - 1u);
    return dequantized(codes, scale_four(column, existing), minimum_four(column, existing));
}

// Of four places of the depth, each with a scale of its own.
fn dequantized_each(codes: mat4x4<f32>, column: u32, k: u32) -> mat4x4<f32> {
    return mat4x4<f32>(
        dequantized_at(codes[0], column, k), dequantized_at(codes[1], column, k + 1u),
        dequantized_at(codes[2], column, k + 2u), dequantized_at(codes[3], column, k + 3u),
    );
}
