// Words of rows and of columns as they are loaded for a tile, 32 places of the depth at a time, and their dot products.
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

fn plus_dots(sums: Integers, rows: vec4<u32>, columns: vec4<u32>) -> Integers {
    return Integers(
        sums.a + dots(rows.x, columns), sums.b + dots(rows.y, columns),
        sums.c + dots(rows.z, columns), sums.d + dots(rows.w, columns),
    );
}
