// 4-bit GEMM of quantized rows, for devices whose workgroups have 32 KB and 256 threads: like q4/int8_tiles.wgsl, with
// tiles of 128 by 128, double-buffered, so that one barrier is enough for 32 places. Of the threads that load a tile
// some load rows, some columns, some their scales. A block of 8 by 8 sums takes its columns in two halves: the integers
// of half a block take fewer registers.
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 256;

const ROWS: u32 = 32; // of the tile, in vec4s
const COLUMNS: u32 = 32;
const STEP: u32 = 32; // of the depth
const THREADS_Y: u32 = 16; // threads
const THREADS_X: u32 = 16;
const WORDS: u32 = 8; // of 32 places, unrolled by hand: a loop costs more than its body
const THREAD_STRIDE: u32 = 16; // vec4s between those that a thread takes
const ROW_LOADERS: u32 = 64;
const COLUMN_LOADERS: u32 = 128;
const FIRST_FACTOR: u32 = ROW_LOADERS + COLUMN_LOADERS;
// Padded, so that what is stored together lies in different banks.
const ROW_PITCH: u32 = ROWS + 1;
const COLUMN_PITCH: u32 = COLUMNS + 2;
const ROW_TILE: u32 = WORDS * ROW_PITCH; // before that of the columns
const TILE: u32 = ROW_TILE + WORDS * COLUMN_PITCH;
const FACTORS: u32 = ROWS + COLUMNS;

var<workgroup> tile: array<vec4<u32>, 2 * TILE>;
var<workgroup> factors: array<vec4<f32>, 2 * FACTORS>;

#include q4/int8_operands
#include q4/int8_tile_loads
#include q4/epilogue
#include q4/epilogue_block

fn scale_of(column: u32, group: u32) -> vec4<f32> {
    return scale_four(min(column, params.columns - 1u), group * STEP) * 0.0625;
}

// What a thread loads of 32 places: words of four rows, or words and scales of four columns, or scales.
fn fetch(thread: u32, first_row: u32, first_column: u32, group: u32) -> Words {
    var next = Words();
    if (thread < ROW_LOADERS) {
        next = words_of_rows(first_row + thread / 2u * 4u, group, thread % 2u);
    } else if (thread < FIRST_FACTOR) {
        let block = thread - ROW_LOADERS;
        let column = first_column + block / 4u * 4u;
        next.a = words_of_columns(column, group, block % 4u);
        if (ASYMMETRIC) {
            next.b = bitcast<vec4<u32>>(scale_of(column, group));
        }
    } else if (thread < FIRST_FACTOR + COLUMNS) {
        next.a = bitcast<vec4<u32>>(scale_of(first_column + (thread - FIRST_FACTOR) * 4u, group));
    } else if (!ASYMMETRIC) {
        next.a = bitcast<vec4<u32>>(floats_of_rows(first_row + (thread - FIRST_FACTOR - COLUMNS) * 4u, group, 0u));
    }
    return next;
}

fn stage(thread: u32, next: Words, buffer: u32) {
    if (thread < ROW_LOADERS) {
        let place = buffer * TILE + thread % 2u * 4u * ROW_PITCH + thread / 2u;
        tile[place] = vec4<u32>(next.a.x, next.b.x, next.c.x, next.d.x);
        tile[place + ROW_PITCH] = vec4<u32>(next.a.y, next.b.y, next.c.y, next.d.y);
        tile[place + 2u * ROW_PITCH] = vec4<u32>(next.a.z, next.b.z, next.c.z, next.d.z);
        tile[place + 3u * ROW_PITCH] = vec4<u32>(next.a.w, next.b.w, next.c.w, next.d.w);
    } else if (thread < FIRST_FACTOR) {
        let block = thread - ROW_LOADERS;
        let place = buffer * TILE + ROW_TILE + block % 4u * COLUMN_PITCH + block / 4u;
        tile[place] = even_bytes(next.a);
        tile[place + 4u * COLUMN_PITCH] = odd_bytes(next.a);
    } else {
        factors[buffer * FACTORS + thread - FIRST_FACTOR] = bitcast<vec4<f32>>(next.a);
    }
}

// The sum of what a thread loaded of the columns, for the zero points of the rows.
fn plus_total(total: vec4<f32>, next: Words) -> vec4<f32> {
    let found = dots(ONES, even_bytes(next.a)) + dots(ONES, odd_bytes(next.a));
    return fma(vec4<f32>(found), bitcast<vec4<f32>>(next.b), total);
}

struct Sums {
    upper: mat4x4<f32>,
    lower: mat4x4<f32>,
}

struct Found {
    upper: Integers,
    lower: Integers,
}

fn plus_word(found: Found, of_rows: u32, of_columns: u32, word: u32) -> Found {
    let four = tile[of_columns + word * COLUMN_PITCH];
    return Found(
        plus_dots(found.upper, tile[of_rows + word * ROW_PITCH], four),
        plus_dots(found.lower, tile[of_rows + word * ROW_PITCH + THREAD_STRIDE], four),
    );
}

// The sums plus integers, dequantized by the scale of their column, and by the step of their row if that is not for the
// whole row.
fn plus_scaled(sums: mat4x4<f32>, found: Integers, scale: vec4<f32>, step: vec4<f32>) -> mat4x4<f32> {
    var steps = step;
    if (ASYMMETRIC) {
        steps = vec4<f32>(1.0);
    }
    return mat4x4<f32>(
        fma(floats_of(found.a), steps.x * scale, sums[0]),
        fma(floats_of(found.b), steps.y * scale, sums[1]),
        fma(floats_of(found.c), steps.z * scale, sums[2]),
        fma(floats_of(found.d), steps.w * scale, sums[3]),
    );
}

fn plus_group(sums: Sums, buffer: u32, row: u32, column: u32) -> Sums {
    let of_rows = buffer * TILE + row;
    let of_columns = buffer * TILE + ROW_TILE + column;
    var found = Found(no_integers(), no_integers());
    found = plus_word(found, of_rows, of_columns, 0u);
    found = plus_word(found, of_rows, of_columns, 1u);
    found = plus_word(found, of_rows, of_columns, 2u);
    found = plus_word(found, of_rows, of_columns, 3u);
    found = plus_word(found, of_rows, of_columns, 4u);
    found = plus_word(found, of_rows, of_columns, 5u);
    found = plus_word(found, of_rows, of_columns, 6u);
    found = plus_word(found, of_rows, of_columns, 7u);
    let scale = factors[buffer * FACTORS + column];
    let steps = buffer * FACTORS + COLUMNS + row;
    return Sums(
        plus_scaled(sums.upper, found.upper, scale, factors[steps]),
        plus_scaled(sums.lower, found.lower, scale, factors[steps + THREAD_STRIDE]),
    );
}

// The sum of four columns, from the partial sums of four threads.
fn total_of(column: u32) -> vec4<f32> {
    let i = column * 4u;
    return bitcast<vec4<f32>>(tile[i]) + bitcast<vec4<f32>>(tile[i + 1u])
        + bitcast<vec4<f32>>(tile[i + 2u]) + bitcast<vec4<f32>>(tile[i + 3u]);
}

fn store_sums(row: u32, column: u32, sums: mat4x4<f32>, total: vec4<f32>) {
    if (ASYMMETRIC) {
        let step = floats_of_rows(row, 0u, 0u);
        let zero = floats_of_rows(row, 0u, 2u);
        store_block(row, column, mat4x4<f32>(
            step.x * (sums[0] - zero.x * total),
            step.y * (sums[1] - zero.y * total),
            step.z * (sums[2] - zero.z * total),
            step.w * (sums[3] - zero.w * total),
        ));
    } else {
        store_block(row, column, sums);
    }
}

fn compute(thread: u32, first_row: u32, first_column: u32, first_group: u32, last_group: u32) {
    let column = thread % THREADS_X;
    let row = thread / THREADS_X;
    var left = Sums();
    var right = Sums();
    var total = vec4<f32>();
    var buffer = 0u;
    var next = fetch(thread, first_row, first_column, min(first_group, groups() - 1u));
    stage(thread, next, buffer);
    workgroupBarrier();
    for (var group = first_group; group < last_group; group++) {
        if (ASYMMETRIC) {
            total = plus_total(total, next);
        }
        next = fetch(thread, first_row, first_column, min(group + 1u, groups() - 1u));
        left = plus_group(left, buffer, row, column);
        right = plus_group(right, buffer, row, column + THREAD_STRIDE);
        buffer = 1u - buffer;
        stage(thread, next, buffer);
        workgroupBarrier();
    }
    var of_left = vec4<f32>();
    var of_right = vec4<f32>();
    if (ASYMMETRIC) {
        if (thread >= ROW_LOADERS && thread < FIRST_FACTOR) {
            tile[thread - ROW_LOADERS] = bitcast<vec4<u32>>(total);
        }
        workgroupBarrier();
        of_left = total_of(column);
        of_right = total_of(column + THREAD_STRIDE);
        // The next tile takes this buffer.
        workgroupBarrier();
    }
    let top = first_row + row * 4u;
    let start = first_column + column * 4u;
    store_sums(top, start, left.upper, of_left);
    store_sums(top, start + THREAD_STRIDE * 4u, right.upper, of_right);
    store_sums(top + THREAD_STRIDE * 4u, start, left.lower, of_left);
    store_sums(top + THREAD_STRIDE * 4u, start + THREAD_STRIDE * 4u, right.lower, of_right);
}

#include q4/tile_grid
