// Tiles of quantized rows: 32 places of the depth at a time, their words outermost; integer sums, which are dequantized
// after each 32 places. Of the threads that load a tile some load rows, some columns, some their scales.
const STEP: u32 = 32; // of the depth
const WORDS: u32 = 8; // of 32 places
// Padded, so that what is stored together lies in different banks.
const ROW_PITCH: u32 = ROWS + 1;
const COLUMN_PITCH: u32 = COLUMNS + 2;
const ROW_TILE: u32 = WORDS * ROW_PITCH; // before that of the columns
const TILE: u32 = ROW_TILE + WORDS * COLUMN_PITCH;
const FACTORS: u32 = COLUMNS + ROWS;
const TERMS: u32 = select(1u, BUFFERS * FACTORS, MINIMA || GROUP == 16u);
// What threads load: a word or two of four columns, half of the words of four rows, factors of four columns or rows.
const FIRST_ROW_LOAD: u32 = COLUMNS * 4;
const FIRST_FACTOR_LOAD: u32 = FIRST_ROW_LOAD + ROWS * 2;
const LOADS: u32 = (FIRST_FACTOR_LOAD + FACTORS + WG - 1) / WG; // of a thread
const HIGH_NIBBLES: vec4<u32> = vec4<u32>(0xf0f0f0f0u);
const SIGNS: vec4<u32> = vec4<u32>(0x80808080u);
const INTEGER_MAGIC: f32 = 12582912.0; // plus an integer below 2^22 it has that integer in its lowest bits

var<workgroup> tile: array<vec4<u32>, BUFFERS * TILE>;
var<workgroup> factors: array<vec4<f32>, BUFFERS * FACTORS>; // scales of columns, then steps of rows
// Minima of columns, in groups of 16 the scale of the last 16; then 8 times the totals of rows, in steps.
var<workgroup> terms: array<vec4<f32>, TERMS>;

#include q4/int8_operands
#include q4/column_vectors

// Four words of four rows, or what else a thread loads.
struct Load {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
}

// Integer sums of 32 places of four columns with four rows.
struct Integers {
    a: vec4<i32>,
    b: vec4<i32>,
    c: vec4<i32>,
    d: vec4<i32>,
}

// The even words of 32 places of four rows, or the odd ones.
fn words_of_rows(row: u32, group: u32, half: u32) -> Load {
    return Load(
        x[place_of_row(row, group) + half], x[place_of_row(row + 1u, group) + half],
        x[place_of_row(row + 2u, group) + half], x[place_of_row(row + 3u, group) + half],
    );
}

fn floats_of_rows(row: u32, group: u32, which: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(
        x[place_of_row(row, group) + 2u][which], x[place_of_row(row + 1u, group) + 2u][which],
        x[place_of_row(row + 2u, group) + 2u][which], x[place_of_row(row + 3u, group) + 2u][which],
    ));
}

fn words_of_columns(column: u32, group: u32, word: u32) -> vec4<u32> {
    let at = columns_from(column) * groups() * (BITS / 4u) + group;
    return vec4<u32>(weight[at.x][word], weight[at.y][word], weight[at.z][word], weight[at.w][word]);
}

// Of the codes in the tile: nibbles are there 16 times as large.
fn scale_of(column: u32, group: u32) -> vec4<f32> {
    let scale = scale_four(min(column, params.columns - 1u), group * STEP);
    if (BITS == 4u) {
        return scale * 0.0625;
    }
    return scale;
}

fn fetch(load: u32, first_row: u32, first_column: u32, step: u32, last_step: u32) -> Load {
    let group = min(step, groups() - 1u);
    var next = Load();
    if (load < FIRST_ROW_LOAD) {
        let column = first_column + load / 4u * 4u;
        if (BITS == 4u) {
            next.a = words_of_columns(column, group, load % 4u);
        } else {
            let half = group * 2u + load % 4u / 2u;
            next.a = words_of_columns(column, half, load % 2u * 2u);
            next.b = words_of_columns(column, half, load % 2u * 2u + 1u);
        }
        if (ASYMMETRIC) {
            next.c = bitcast<vec4<u32>>(scale_of(column, group));
        }
    } else if (load < FIRST_FACTOR_LOAD) {
        let own = load - FIRST_ROW_LOAD;
        next = words_of_rows(first_row + own / 2u * 4u, group, own % 2u);
    } else if (load < FIRST_FACTOR_LOAD + COLUMNS) {
        let column = min(first_column + (load - FIRST_FACTOR_LOAD) * 4u, params.columns - 1u);
        next.a = bitcast<vec4<u32>>(scale_of(column, group));
        if (GROUP == 16u) {
            next.b = bitcast<vec4<u32>>(scale_four(column, group * STEP + 16u));
        } else if (MINIMA) {
            next.b = bitcast<vec4<u32>>(minimum_four(column, group * STEP));
        }
    } else if (load < FIRST_FACTOR_LOAD + FACTORS) {
        let row = first_row + (load - FIRST_FACTOR_LOAD - COLUMNS) * 4u;
        if (!ASYMMETRIC) {
            next.a = bitcast<vec4<u32>>(floats_of_rows(row, group, 0u));
        }
        if (MINIMA) {
            next.b = bitcast<vec4<u32>>(floats_of_rows(row, group, 1u));
        }
    }
    return next;
}

// Of eight bytes places 0, 1, 4, 5, and 2, 3, 6, 7.
fn outer_of(eights: Load) -> vec4<u32> {
    return (eights.a & vec4<u32>(0xffffu)) | (eights.b << vec4<u32>(16u));
}

fn inner_of(eights: Load) -> vec4<u32> {
    return (eights.a >> vec4<u32>(16u)) | (eights.b & vec4<u32>(0xffff0000u));
}

// The even places of eight in every column as signed bytes: of nibbles 16 times what they are less their offset.
fn evens_of(eights: Load) -> vec4<u32> {
    if (BITS == 4u) {
        return (select(eights.a << vec4<u32>(4u), eights.a, HIGH_FIRST) & HIGH_NIBBLES) ^ SIGNS;
    }
    return (outer_of(eights) & EVEN_BYTES) | ((inner_of(eights) & EVEN_BYTES) << vec4<u32>(8u));
}

fn odds_of(eights: Load) -> vec4<u32> {
    if (BITS == 4u) {
        return (select(eights.a, eights.a << vec4<u32>(4u), HIGH_FIRST) & HIGH_NIBBLES) ^ SIGNS;
    }
    return ((outer_of(eights) >> vec4<u32>(8u)) & EVEN_BYTES) | (inner_of(eights) & ODD_BYTES);
}

fn stage(load: u32, next: Load, buffer: u32) {
    if (load < FIRST_ROW_LOAD) {
        let place = buffer * TILE + ROW_TILE + load % 4u * COLUMN_PITCH + load / 4u;
        tile[place] = evens_of(next);
        tile[place + 4u * COLUMN_PITCH] = odds_of(next);
    } else if (load < FIRST_FACTOR_LOAD) {
        let own = load - FIRST_ROW_LOAD;
        let place = buffer * TILE + own % 2u * 4u * ROW_PITCH + own / 2u;
#unroll word < 4
        tile[place + $wordu * ROW_PITCH] = vec4<u32>(next.a[$word], next.b[$word], next.c[$word], next.d[$word]);
#endunroll
    } else if (load < FIRST_FACTOR_LOAD + FACTORS) {
        factors[buffer * FACTORS + load - FIRST_FACTOR_LOAD] = bitcast<vec4<f32>>(next.a);
        if (TERMS > 1u) {
            terms[buffer * FACTORS + load - FIRST_FACTOR_LOAD] = bitcast<vec4<f32>>(next.b);
        }
    }
}

fn dots(row: u32, columns: vec4<u32>) -> vec4<i32> {
    return vec4<i32>(
        dot4I8Packed(row, columns.x), dot4I8Packed(row, columns.y),
        dot4I8Packed(row, columns.z), dot4I8Packed(row, columns.w),
    );
}

// The sum of what a thread loaded of the columns, for the zero points of the rows.
fn plus_total(total: vec4<f32>, next: Load) -> vec4<f32> {
    let found = dots(ONES, evens_of(next)) + dots(ONES, odds_of(next));
    return fma(vec4<f32>(found), bitcast<vec4<f32>>(next.c), total);
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

fn scale_of_half(column: u32, half: u32) -> vec4<f32> {
    if (GROUP == 16u && half == 1u) {
        return terms[column];
    }
    return factors[column];
}

// The sums plus integers, dequantized by the scale of their column, and by the step of their row if that is not for the
// whole row.
fn plus_scaled(sums: mat4x4<f32>, found: Integers, scale: vec4<f32>, row: u32, column: u32) -> mat4x4<f32> {
    var step = vec4<f32>(1.0);
    if (!ASYMMETRIC) {
        step = factors[row];
    }
    let scaled = mat4x4<f32>(
        fma(floats_of(found.a), step.x * scale, sums[0]),
        fma(floats_of(found.b), step.y * scale, sums[1]),
        fma(floats_of(found.c), step.z * scale, sums[2]),
        fma(floats_of(found.d), step.w * scale, sums[3]),
    );
    if (MINIMA) {
        return plus_outer(scaled, step * terms[row] * 0.125, terms[column]);
    }
    return scaled;
}

// The sum of four columns, from the partial sums of four threads.
fn total_of(column: u32) -> vec4<f32> {
    let i = column * 4u;
    return bitcast<vec4<f32>>(tile[i]) + bitcast<vec4<f32>>(tile[i + 1u])
        + bitcast<vec4<f32>>(tile[i + 2u]) + bitcast<vec4<f32>>(tile[i + 3u]);
}

// Sums of rows that have one step and one zero point each.
fn less_zeros(sums: mat4x4<f32>, total: vec4<f32>, row: u32) -> mat4x4<f32> {
    let step = floats_of_rows(row, 0u, 0u);
    let zero = floats_of_rows(row, 0u, 2u);
    return mat4x4<f32>(
        step.x * (sums[0] - zero.x * total),
        step.y * (sums[1] - zero.y * total),
        step.z * (sums[2] - zero.z * total),
        step.w * (sums[3] - zero.w * total),
    );
}
