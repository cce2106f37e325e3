// 4-bit GEMM of rows of floats, for devices whose workgroups have 256 threads: like q4/tiles.wgsl, with tiles of 128 by
// 128 and blocks of 8 by 8. No register prefetch, so two workgroups fit per multiprocessor: one computes while the
// other waits for memory. The depth is a multiple of 16, and four neighbours of it share a scale.
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
// T: f32, f16
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 256;

const ROWS: u32 = 32; // of the tile, in vec4s
const COLUMNS: u32 = 32;
const STEP: u32 = 16; // of the depth
const PITCH: u32 = ROWS + COLUMNS;
const THREAD_STRIDE: u32 = 16; // vec4s between those that a thread takes
const LOADERS: u32 = 128; // of the rows, and as many of the columns

var<workgroup> tile: array<vec4<f32>, STEP * PITCH>;

#include common/multiply_add
#include q4/float_operands
#include q4/epilogue
#include q4/epilogue_block

// Four places of the depth of four rows, as they lie in memory.
struct Rows {
    a: V,
    b: V,
    c: V,
    d: V,
}

// And of four columns.
struct Columns {
    words: vec4<u32>,
    scale: vec4<f32>,
    minimum: vec4<f32>,
}

struct Sums {
    upper_left: mat4x4<f32>,
    upper_right: mat4x4<f32>,
    lower_left: mat4x4<f32>,
    lower_right: mat4x4<f32>,
}

fn numbers_at(row: u32, k: u32) -> V {
    return x[(min(row, params.rows - 1u) * params.depth + k) / V_lanes];
}

fn rows_at(row: u32, k: u32) -> Rows {
    return Rows(numbers_at(row, k), numbers_at(row + 1u, k), numbers_at(row + 2u, k), numbers_at(row + 3u, k));
}

fn columns_at(first: u32, k: u32) -> Columns {
    let last = params.columns - 1u;
    let column = min(first, last);
    let words = vec4<u32>(
        four_at(column, k),
        four_at(min(column + 1u, last), k),
        four_at(min(column + 2u, last), k),
        four_at(min(column + 3u, last), k),
    );
    return Columns(words, scale_four(column, k), minimum_four(column, k));
}

// Swizzled: vec4s of neighbours of the depth that are stored together lie in different banks.
fn swizzle(four: u32) -> u32 {
    return four % 4u * 2u;
}

fn stage(place: u32, block: mat4x4<f32>) {
    tile[place] = block[0];
    tile[place + PITCH] = block[1];
    tile[place + 2u * PITCH] = block[2];
    tile[place + 3u * PITCH] = block[3];
}

fn stage_rows(place: u32, rows: Rows) {
    stage(place, transpose(mat4x4<f32>(
        vec4<f32>(V_math(rows.a)), vec4<f32>(V_math(rows.b)), vec4<f32>(V_math(rows.c)), vec4<f32>(V_math(rows.d)),
    )));
}

fn stage_columns(place: u32, columns: Columns, k: u32) {
    let codes = transpose(mat4x4<f32>(
        codes_of(columns.words.x, k),
        codes_of(columns.words.y, k),
        codes_of(columns.words.z, k),
        codes_of(columns.words.w, k),
    ));
    let scale = columns.scale;
    let minimum = columns.minimum;
    stage(place + ROWS, mat4x4<f32>(
        dequantized(codes[0], scale, minimum), dequantized(codes[1], scale, minimum),
        dequantized(codes[2], scale, minimum), dequantized(codes[3], scale, minimum),
    ));
}

fn plus_one(sums: Sums, row: u32, column: u32) -> Sums {
    let upper = tile[row];
    let lower = tile[row + THREAD_STRIDE];
    let left = tile[column];
    let right = tile[column + THREAD_STRIDE];
    return Sums(
        plus_outer(sums.upper_left, upper, left),
        plus_outer(sums.upper_right, upper, right),
        plus_outer(sums.lower_left, lower, left),
        plus_outer(sums.lower_right, lower, right),
    );
}

fn plus_four(sums: Sums, first: u32, row: u32, column: u32, four: u32) -> Sums {
    let of_row = first + four * 4u * PITCH + (row ^ swizzle(four));
    let of_column = first + four * 4u * PITCH + ROWS + (column ^ swizzle(four));
    let one = plus_one(sums, of_row, of_column);
    let two = plus_one(one, of_row + PITCH, of_column + PITCH);
    let three = plus_one(two, of_row + 2u * PITCH, of_column + 2u * PITCH);
    return plus_one(three, of_row + 3u * PITCH, of_column + 3u * PITCH);
}

fn compute(thread: u32, first_row: u32, first_column: u32, first_step: u32, last_step: u32) {
    // The threads of a subgroup take 4 by 8 blocks: fewer reads of the tile for all of them than in a line.
    let column = thread / 32u % 2u * 8u + thread % 8u;
    let row = thread / 64u * 4u + thread % 32u / 8u;
    let last_k = params.depth - STEP;
    let loads_rows = thread < LOADERS;
    let four = thread % LOADERS / 4u;
    let inner_k = thread % 4u * 4u;
    let place = inner_k * PITCH + (four ^ swizzle(thread));
    var sums = Sums();
    for (var step = first_step; step < last_step; step++) {
        let k = min(step * STEP, last_k) + inner_k;
        if (loads_rows) {
            stage_rows(place, rows_at(first_row + four * 4u, k));
        } else {
            stage_columns(place, columns_at(first_column + four * 4u, k), inner_k);
        }
        workgroupBarrier();
        sums = plus_four(sums, 0u, row, column, 0u);
        sums = plus_four(sums, 0u, row, column, 1u);
        sums = plus_four(sums, 0u, row, column, 2u);
        sums = plus_four(sums, 0u, row, column, 3u);
        workgroupBarrier();
    }
    let top = first_row + row * 4u;
    let left = first_column + column * 4u;
    store_block(top, left, sums.upper_left);
    store_block(top, left + THREAD_STRIDE * 4u, sums.upper_right);
    store_block(top + THREAD_STRIDE * 4u, left, sums.lower_left);
    store_block(top + THREAD_STRIDE * 4u, left + THREAD_STRIDE * 4u, sums.lower_right);
}

#include q4/tile_grid
