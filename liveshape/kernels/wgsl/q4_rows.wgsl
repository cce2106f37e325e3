// A 4-bit linear layer of few rows, bound by reading the weight once: a unit is four columns of up to four rows, PARTS
// threads share its depth, and each weight is made a number once for these rows.
// T: f32, f16
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 256;
override ROWS: u32 = 1; // that a thread takes, 1 or 4
override TURNS: u32 = 1; // how many words of a column a thread asks for before it waits for the first: 1 or 4
override SCALED: u32 = 8; // how many neighbours of the depth surely share a scale: 8 or 1

alias Total = array<vec4<f32>, ROWS>; // per row, the sums of four columns

fn combine(a: Total, b: Total) -> Total {
    var left = a;
    var right = b;
    for (var r = 0u; r < ROWS; r++) {
        left[r] += right[r];
    }
    return left;
}

// include multiply_add
// include parts
// include q4_operands
// include q4_row
// include q4_put

// Eight places of the depth of four columns, on their way from memory.
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

fn plus_scaled(sums: vec4<f32>, row: u32, k: u32, low: mat4x4<f32>, high: mat4x4<f32>, scale: vec4<f32>) -> vec4<f32> {
    let existing = min(row, params.rows - 1u);
    let products = plus_product(row_four(existing, k) * low, row_four(existing, k + 4u), high);
    return fma(products, scale, sums);
}

// The sums of four rows are a matrix: an array that is indexed in a loop may end up in memory.
fn plus(sums: mat4x4<f32>, eight: Eight, row: u32, column: u32) -> mat4x4<f32> {
    var result = sums;
    let k = eight.k;
    let a = in_order(eight.words.x);
    let b = in_order(eight.words.y);
    let c = in_order(eight.words.z);
    let d = in_order(eight.words.w);
    var low = mat4x4<f32>(four_of(a), four_of(b), four_of(c), four_of(d));
    var high = mat4x4<f32>(four_of(a >> 16u), four_of(b >> 16u), four_of(c >> 16u), four_of(d >> 16u));
    if (SCALED == 1u) {
        low = scaled_each(low, column, k);
        high = scaled_each(high, column, k + 4u);
    }
    result[0] = plus_scaled(result[0], row, k, low, high, eight.scale);
    if (ROWS == 4u) {
        result[1] = plus_scaled(result[1], row + 1u, k, low, high, eight.scale);
        result[2] = plus_scaled(result[2], row + 2u, k, low, high, eight.scale);
        result[3] = plus_scaled(result[3], row + 3u, k, low, high, eight.scale);
    }
    return result;
}

// What a thread asks for before it waits for the first of it.
struct Turn {
    first: Eight,
    second: Eight,
    third: Eight,
    fourth: Eight,
}

fn ask(columns: vec4<u32>, i: u32) -> Turn {
    let first = fetch(columns, i);
    if (TURNS == 4u) {
        return Turn(first, fetch(columns, i + SHARE), fetch(columns, i + 2u * SHARE), fetch(columns, i + 3u * SHARE));
    }
    return Turn(first, first, first, first);
}

fn plus_turn(sums: mat4x4<f32>, turn: Turn, row: u32, column: u32) -> mat4x4<f32> {
    let result = plus(sums, turn.first, row, column);
    if (TURNS == 4u) {
        return plus(plus(plus(result, turn.second, row, column), turn.third, row, column), turn.fourth, row, column);
    }
    return result;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let per_row = (params.columns + 3u) / 4u;
    let unit = unit_of(group_index(group, grid), lane);
    let last = params.columns - 1u;
    let row = unit / per_row * ROWS;
    let column = unit % per_row * 4u;
    let columns = vec4<u32>(column, min(column + 1u, last), min(column + 2u, last), min(column + 3u, last));
    let part = part_of(lane);
    var sums = mat4x4<f32>();
    // There are fewer parts than words, so that each has a first turn; it is on its way while the row is taken.
    var i = part;
    var turn = ask(columns, i);
    take_row(lane);
    loop {
        sums = plus_turn(sums, turn, row, column);
        i += SHARE * TURNS;
        if (i * 8u >= params.depth) {
            break;
        }
        turn = ask(columns, i);
    }
    var mine = Total();
    for (var r = 0u; r < ROWS; r++) {
        mine[r] = sums[r];
    }
    var total = across_parts(lane, mine);
    for (var r = part; r < ROWS; r += SHARE) {
        put_four(row + r, column, total[r]);
    }
}
