// 32 places of the depth of four columns as they lie in memory, and their products with a quantized row.
struct Four {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
    scale: vec4<f32>,
    minimum: vec4<f32>,
}

fn fetch(column: u32, group: u32) -> Four {
    let last = params.columns - 1u;
    let wide = groups();
    return Four(
        weight[column * wide + group],
        weight[min(column + 1u, last) * wide + group],
        weight[min(column + 2u, last) * wide + group],
        weight[min(column + 3u, last) * wide + group],
        scale_four(column, group * 32u),
        minimum_four(column, group * 32u),
    );
}

fn dot_words(words: vec4<u32>, even: vec4<u32>, odd: vec4<u32>) -> i32 {
    let low = evens(words);
    let high = odds(words);
    return dot4I8Packed(low.x, even.x) + dot4I8Packed(low.y, even.y)
        + dot4I8Packed(low.z, even.z) + dot4I8Packed(low.w, even.w)
        + dot4I8Packed(high.x, odd.x) + dot4I8Packed(high.y, odd.y)
        + dot4I8Packed(high.z, odd.z) + dot4I8Packed(high.w, odd.w);
}

fn dot_four(four: Four, even: vec4<u32>, odd: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(vec4<i32>(
        dot_words(four.a, even, odd),
        dot_words(four.b, even, odd),
        dot_words(four.c, even, odd),
        dot_words(four.d, even, odd),
    ));
}

// The sums of four columns plus the products of 32 places with a quantized row: its integers, its step and zero point.
fn plus_bytes(sums: vec4<f32>, four: Four, even: vec4<u32>, odd: vec4<u32>, of_row: vec4<f32>) -> vec4<f32> {
    var dots = dot_four(four, even, odd) - of_row.y;
    if (ASYMMETRIC) {
        dots -= of_row.z * dot_four(four, vec4<u32>(ONES), vec4<u32>(ONES));
    }
    let scaled = fma(dots, of_row.x * four.scale, sums);
    if (MINIMA) {
        return fma(vec4<f32>(of_row.x * of_row.y * 0.125), four.minimum, scaled);
    }
    return scaled;
}
