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
    let wide = groups();
    return vec4<u32>(
        weight[min(column, last) * wide + group][word],
        weight[min(column + 1u, last) * wide + group][word],
        weight[min(column + 2u, last) * wide + group][word],
        weight[min(column + 3u, last) * wide + group][word],
    );
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
