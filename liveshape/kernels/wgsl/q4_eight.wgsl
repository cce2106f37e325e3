// Eight places of the depth of four columns, on their way from memory, and their products with a row.
override SCALED: u32 = 8; // how many neighbours of the depth surely share a scale: 8 or 1

struct Eight {
    words: vec4<u32>,
    scale: vec4<f32>,
    k: u32,
}

fn fetch(columns: vec4<u32>, i: u32) -> Eight {
    let words = vec4<u32>(word(columns.x, i), word(columns.y, i), word(columns.z, i), word(columns.w, i));
    if (SCALED == 8u) {
        return Eight(words, scale_four(columns.x, i * 8u), i * 8u);
    }
    return Eight(words, vec4<f32>(1.0), i * 8u);
}

fn scaled_each(block: mat4x4<f32>, column: u32, k: u32) -> mat4x4<f32> {
    let places = transpose(block);
    let end = params.depth - 1u;
    return transpose(mat4x4<f32>(
        places[0] * scale_four(column, min(k, end)),
        places[1] * scale_four(column, min(k + 1u, end)),
        places[2] * scale_four(column, min(k + 2u, end)),
        places[3] * scale_four(column, min(k + 3u, end)),
    ));
}

// The same places as numbers, which are made once for all rows.
struct Numbers {
    low: mat4x4<f32>,
    high: mat4x4<f32>,
    scale: vec4<f32>,
    k: u32,
}

fn numbers_of(eight: Eight, column: u32) -> Numbers {
    let a = in_order(eight.words.x);
    let b = in_order(eight.words.y);
    let c = in_order(eight.words.z);
    let d = in_order(eight.words.w);
    var low = mat4x4<f32>(four_of(a), four_of(b), four_of(c), four_of(d));
    var high = mat4x4<f32>(four_of(a >> 16u), four_of(b >> 16u), four_of(c >> 16u), four_of(d >> 16u));
    if (SCALED == 1u) {
        low = scaled_each(low, column, eight.k);
        high = scaled_each(high, column, eight.k + 4u);
    }
    return Numbers(low, high, eight.scale, eight.k);
}

fn plus_row(sums: vec4<f32>, numbers: Numbers, row: u32) -> vec4<f32> {
    let existing = min(row, params.rows - 1u);
    let first = row_four(existing, numbers.k) * numbers.low;
    let products = plus_product(first, row_four(existing, numbers.k + 4u), numbers.high);
    return fma(products, numbers.scale, sums);
}
