// 32 places of the depth of four columns as they lie in memory, and their products with a quantized row.
#include q4/column_vectors

struct Four {
    vectors: Vectors,
    upper: Vectors, // of bytes, the last 16 places
    scale: vec4<f32>,
    upper_scale: vec4<f32>, // of the last 16 places, where these have their own
    minimum: vec4<f32>,
}

// 32 places of a quantized row in the order of the weight: of nibbles the even and the odd ones, of bytes the first 16
// and the last 16.
struct Places {
    low: vec4<u32>,
    high: vec4<u32>,
}

fn fetch(column: u32, group: u32) -> Four {
    let places = (columns_from(column) * groups() + group) * (BITS / 4u);
    let vectors = vectors_at(places); // before what is waited for with it
    var upper = Vectors();
    if (BITS == 8u) {
        upper = vectors_at(places + 1u);
    }
    var upper_scale = vec4<f32>();
    if (GROUP == 16u) {
        upper_scale = scale_four(column, group * 32u + 16u);
    }
    let scale = scale_four(column, group * 32u);
    return Four(vectors, upper, scale, upper_scale, minimum_four(column, group * 32u));
}

// Even and odd places, as rows are stored, in the order of the weight.
fn in_weight_order(even: vec4<u32>, odd: vec4<u32>) -> Places {
    if (BITS == 4u) {
        return Places(even, odd);
    }
    // Of eight places 0, 1, 4, 5 and 2, 3, 6, 7.
    let outer = (even & EVEN_BYTES) | ((odd & EVEN_BYTES) << vec4<u32>(8u));
    let inner = ((even >> vec4<u32>(8u)) & EVEN_BYTES) | (odd & ODD_BYTES);
    let first = (outer & vec4<u32>(0xffffu)) | (inner << vec4<u32>(16u));
    let second = (outer >> vec4<u32>(16u)) | (inner & vec4<u32>(0xffff0000u));
    return Places(vec4<u32>(first.x, second.x, first.y, second.y), vec4<u32>(first.z, second.z, first.w, second.w));
}

fn dot_16(words: vec4<u32>, row: vec4<u32>) -> i32 {
    return dot4I8Packed(words.x, row.x) + dot4I8Packed(words.y, row.y)
        + dot4I8Packed(words.z, row.z) + dot4I8Packed(words.w, row.w);
}

fn dot_words(words: vec4<u32>, row: Places) -> i32 {
    return dot_16(evens(words), row.low) + dot_16(odds(words), row.high);
}

// 16 places of bytes.
fn dot_bytes(bytes: Vectors, row: vec4<u32>) -> vec4<i32> {
    return vec4<i32>(dot_16(bytes[0], row), dot_16(bytes[1], row), dot_16(bytes[2], row), dot_16(bytes[3], row));
}

fn dot_four(four: Four, row: Places) -> vec4<f32> {
    if (BITS == 8u) {
        return vec4<f32>(dot_bytes(four.vectors, row.low) + dot_bytes(four.upper, row.high));
    }
    return vec4<f32>(vec4<i32>(
        dot_words(four.vectors[0], row), dot_words(four.vectors[1], row),
        dot_words(four.vectors[2], row), dot_words(four.vectors[3], row),
    ));
}

// The sums of four columns plus the products of 32 places with a quantized row: its integers, its step and zero point.
fn plus_bytes(sums: vec4<f32>, four: Four, row: Places, of_row: vec4<f32>) -> vec4<f32> {
    if (GROUP == 16u) {
        let lower = fma(vec4<f32>(dot_bytes(four.vectors, row.low)), of_row.x * four.scale, sums);
        return fma(vec4<f32>(dot_bytes(four.upper, row.high)), of_row.x * four.upper_scale, lower);
    }
    var dots = dot_four(four, row);
    if (BITS == 4u) {
        dots -= of_row.y;
    }
    if (ASYMMETRIC) {
        dots -= of_row.z * dot_four(four, Places(vec4<u32>(ONES), vec4<u32>(ONES)));
    }
    let scaled = fma(dots, of_row.x * four.scale, sums);
    if (MINIMA) {
        return fma(vec4<f32>(of_row.x * of_row.y * 0.125), four.minimum, scaled);
    }
    return scaled;
}
