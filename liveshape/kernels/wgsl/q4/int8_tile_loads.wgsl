// Words of rows and of columns as they are loaded for a tile, 32 places of the depth at a time, and their dot products.
const INTEGER_MAGIC: f32 = 12582912.0; // plus an integer below 2^22 it has that integer in its lowest bits

// Four words of four rows.
struct Words {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
}

struct Integers {
    a: vec4<i32>,
    b: vec4<i32>,
    c: vec4<i32>,
    d: vec4<i32>,
}

fn place_of_row(row: u32, group: u32) -> u32 {
    return (min(row, params.rows - 1u) * groups() + group) * 3u;
}

fn words_of_rows(row: u32, group: u32, half: u32) -> Words {
    return Words(
        x[place_of_row(row, group) + half],
        x[place_of_row(row + 1u, group) + half],
        x[place_of_row(row + 2u, group) + half],
        x[place_of_row(row + 3u, group) + half],
    );
}

fn words_of_columns(column: u32, group: u32, word: u32) -> vec4<u32> {
    let last = params.columns - 1u;
    let wide = groups() * (BITS / 4u);
    return vec4<u32>(
        weight[min(column, last) * wide + group][word],
        weight[min(column + 1u, last) * wide + group][word],
        weight[min(column + 2u, last) * wide + group][word],
        weight[min(column + 3u, last) * wide + group][word],
    );
}

// Words of the eight places of a column that a thread loads: one of nibbles, two of bytes.
struct Eights {
    words: vec4<u32>,
    more: vec4<u32>,
}

fn eights_of_columns(column: u32, group: u32, eight: u32) -> Eights {
    if (BITS == 4u) {
        return Eights(words_of_columns(column, group, eight), vec4<u32>());
    }
    let half = group * 2u + eight / 2u;
    let word = eight % 2u * 2u;
    return Eights(words_of_columns(column, half, word), words_of_columns(column, half, word + 1u));
}

// The even places of eights as signed bytes: of nibbles 16 times what they are less their offset.
fn evens_of(eights: Eights) -> vec4<u32> {
    if (BITS == 4u) {
        return even_bytes(eights.words);
    }
    return (outer_of(eights) & EVEN_BYTES) | ((inner_of(eights) & EVEN_BYTES) << vec4<u32>(8u));
}

fn odds_of(eights: Eights) -> vec4<u32> {
    if (BITS == 4u) {
        return odd_bytes(eights.words);
    }
    return ((outer_of(eights) >> vec4<u32>(8u)) & EVEN_BYTES) | (inner_of(eights) & ODD_BYTES);
}

// Places 0, 1, 4, 5 of eight bytes, and 2, 3, 6, 7.
fn outer_of(eights: Eights) -> vec4<u32> {
    return (eights.words & vec4<u32>(0xffffu)) | (eights.more << vec4<u32>(16u));
}

fn inner_of(eights: Eights) -> vec4<u32> {
    return (eights.words >> vec4<u32>(16u)) | (eights.more & vec4<u32>(0xffff0000u));
}

// 16 times the nibbles less their offset, as signed bytes.
fn even_bytes(words: vec4<u32>) -> vec4<u32> {
    return (select(words << vec4<u32>(4u), words, HIGH_FIRST) & vec4<u32>(0xf0f0f0f0u)) ^ vec4<u32>(0x80808080u);
}

fn odd_bytes(words: vec4<u32>) -> vec4<u32> {
    return (select(words, words << vec4<u32>(4u), HIGH_FIRST) & vec4<u32>(0xf0f0f0f0u)) ^ vec4<u32>(0x80808080u);
}

fn floats_of_rows(row: u32, group: u32, which: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(
        x[place_of_row(row, group) + 2u][which],
        x[place_of_row(row + 1u, group) + 2u][which],
        x[place_of_row(row + 2u, group) + 2u][which],
        x[place_of_row(row + 3u, group) + 2u][which],
    ));
}

fn dots(row: u32, columns: vec4<u32>) -> vec4<i32> {
    return vec4<i32>(
        dot4I8Packed(row, columns.x), dot4I8Packed(row, columns.y),
        dot4I8Packed(row, columns.z), dot4I8Packed(row, columns.w),
    );
}

// Sums of nothing yet. They begin at the magic number, so that they are floats without a conversion.
fn no_integers() -> Integers {
    let nothing = bitcast<vec4<i32>>(vec4<f32>(INTEGER_MAGIC));
    return Integers(nothing, nothing, nothing, nothing);
}

fn floats_of(sums: vec4<i32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(sums) - vec4<f32>(INTEGER_MAGIC);
}

fn plus_dots(sums: Integers, rows: vec4<u32>, columns: vec4<u32>) -> Integers {
    return Integers(
        sums.a + dots(rows.x, columns), sums.b + dots(rows.y, columns),
        sums.c + dots(rows.z, columns), sums.d + dots(rows.w, columns),
    );
}
