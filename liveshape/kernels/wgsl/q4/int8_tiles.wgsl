// 4-bit GEMM of quantized rows: a workgroup stages a tile of both factors in its memory, 32 places of the depth at a
// time and words outermost; a thread keeps a block of integer sums, which are dequantized after each 32 places. The
// next 32 are prefetched to registers while these are computed. Where the memory of a workgroup holds two such tiles,
// one barrier is enough for 32 places.
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 128;
override ROW_THREADS: u32 = 8;
override ROW_VEC4S: u32 = 2; // that a thread takes, 1 or 2
override COLUMN_VEC4S: u32 = 2; // that a thread takes, 1 or 2
override BUFFERS: u32 = 2; // of the tile, 1 or 2

const THREADS_Y: u32 = min(ROW_THREADS, WG); // a device may clamp the workgroup
const THREADS_X: u32 = WG / THREADS_Y;
const ROWS: u32 = THREADS_Y * ROW_VEC4S; // of the tile, in vec4s
const COLUMNS: u32 = THREADS_X * COLUMN_VEC4S;
const STEP: u32 = 32; // of the depth
const WORDS: u32 = 8; // of 32 places, unrolled by hand: a loop costs more than its body
const PITCH: u32 = ROWS + COLUMNS + 1; // one more, so that neighbouring words lie in different banks
const TILE: u32 = WORDS * PITCH;
const ROW_LOADS: u32 = (ROWS * 2 + WG - 1) / WG;
const COLUMN_LOADS: u32 = (COLUMNS * 4 + WG - 1) / WG;
const FACTOR_LOADS: u32 = (ROWS + COLUMNS + WG - 1) / WG;

var<workgroup> tile: array<vec4<u32>, BUFFERS * TILE>;
var<workgroup> scale_of_columns: array<vec4<f32>, BUFFERS * COLUMNS>;
var<workgroup> step_of_rows: array<vec4<f32>, BUFFERS * ROWS>;
var<workgroup> zero_of_rows: array<vec4<f32>, BUFFERS * ROWS>;
var<workgroup> minimum_of_columns: array<vec4<f32>, BUFFERS * COLUMNS>; // in groups of 16 the scale of the last 16
var<workgroup> total_of_rows: array<vec4<f32>, BUFFERS * ROWS>; // 8 times that of their bytes, in steps

#include common/multiply_add
#include q4/int8_operands
#include q4/int8_tile_loads
#include q4/epilogue
#include q4/epilogue_block

// Integer sums of 32 places: of the thread's block, and of those below and beside if it has them.
struct Found {
    upper: Integers,
    lower: Integers,
    upper_beside: Integers,
    lower_beside: Integers,
    total: vec4<i32>, // of the weight alone
    total_beside: vec4<i32>,
}

fn plus_word(before: Found, buffer: u32, row: u32, column: u32, word: u32) -> Found {
    var found = before;
    let i = buffer * TILE + word * PITCH;
    let four = tile[i + column];
    let rows = tile[i + COLUMNS + row];
    found.upper = plus_dots(found.upper, rows, four);
    if (ASYMMETRIC) {
        found.total += dots(ONES, four);
    }
    if (ROW_VEC4S == 2u) {
        found.lower = plus_dots(found.lower, tile[i + COLUMNS + row + THREADS_Y], four);
    }
    if (COLUMN_VEC4S == 2u) {
        let beside = tile[i + column + THREADS_X];
        found.upper_beside = plus_dots(found.upper_beside, rows, beside);
        if (ASYMMETRIC) {
            found.total_beside += dots(ONES, beside);
        }
        if (ROW_VEC4S == 2u) {
            found.lower_beside = plus_dots(found.lower_beside, tile[i + COLUMNS + row + THREADS_Y], beside);
        }
    }
    return found;
}

// The sums plus integers, dequantized by the scale of their column and the step of their row.
fn plus_scaled(
    sums: mat4x4<f32>, found: Integers, total: vec4<i32>, row: u32, column: u32, scale: vec4<f32>,
) -> mat4x4<f32> {
    let step = step_of_rows[row];
    var a = floats_of(found.a);
    var b = floats_of(found.b);
    var c = floats_of(found.c);
    var d = floats_of(found.d);
    if (ASYMMETRIC) {
        let zero = zero_of_rows[row];
        let all = vec4<f32>(total);
        a -= zero.x * all;
        b -= zero.y * all;
        c -= zero.z * all;
        d -= zero.w * all;
    }
    let scaled = mat4x4<f32>(
        fma(a, step.x * scale, sums[0]),
        fma(b, step.y * scale, sums[1]),
        fma(c, step.z * scale, sums[2]),
        fma(d, step.w * scale, sums[3]),
    );
    if (MINIMA) {
        return plus_outer(scaled, step * total_of_rows[row] * 0.125, minimum_of_columns[column]);
    }
    return scaled;
}

// The scale of the codes in the tile: nibbles are there 16 times as large.
fn code_scale(scale: vec4<f32>) -> vec4<f32> {
    if (BITS == 4u) {
        return scale * 0.0625;
    }
    return scale;
}

fn nothing() -> Found {
    return Found(no_integers(), no_integers(), no_integers(), no_integers(), vec4<i32>(), vec4<i32>());
}

// The sums of a thread: as of `Found`.
struct Blocks {
    upper: mat4x4<f32>,
    lower: mat4x4<f32>,
    upper_beside: mat4x4<f32>,
    lower_beside: mat4x4<f32>,
}

fn scale_at(column: u32, upper: bool) -> vec4<f32> {
    if (upper) {
        return minimum_of_columns[column];
    }
    return scale_of_columns[column];
}

// The blocks plus integers; `upper`: of the last 16 places, which have a scale of their own.
fn plus_found(sums: Blocks, found: Found, buffer: u32, row: u32, column: u32, upper: bool) -> Blocks {
    var blocks = sums;
    let of_row = buffer * ROWS + row;
    let of_column = buffer * COLUMNS + column;
    let scale = scale_at(of_column, upper);
    blocks.upper = plus_scaled(blocks.upper, found.upper, found.total, of_row, of_column, scale);
    if (ROW_VEC4S == 2u) {
        blocks.lower = plus_scaled(blocks.lower, found.lower, found.total, of_row + THREADS_Y, of_column, scale);
    }
    if (COLUMN_VEC4S == 2u) {
        let of_beside = of_column + THREADS_X;
        let scale_beside = scale_at(of_beside, upper);
        blocks.upper_beside =
            plus_scaled(blocks.upper_beside, found.upper_beside, found.total_beside, of_row, of_beside, scale_beside);
        if (ROW_VEC4S == 2u) {
            blocks.lower_beside = plus_scaled(
                blocks.lower_beside, found.lower_beside, found.total_beside, of_row + THREADS_Y, of_beside, scale_beside,
            );
        }
    }
    return blocks;
}

fn compute(thread: u32, first_row: u32, first_column: u32, first_group: u32, last_group: u32) {
    let column = thread % THREADS_X;
    let row = thread / THREADS_X;
    var sums_0 = mat4x4<f32>();
    var sums_1 = mat4x4<f32>();
    var sums_2 = mat4x4<f32>();
    var sums_3 = mat4x4<f32>();
    var next_rows: array<Words, ROW_LOADS>;
    var next_columns: array<Eights, COLUMN_LOADS>;
    var next_factors: array<vec4<f32>, FACTOR_LOADS>;
    var next_zeros: array<vec4<f32>, FACTOR_LOADS>;
    var next_terms: array<vec4<f32>, FACTOR_LOADS>; // of minima
    var buffer = 0u;
    for (var group = first_group; group <= last_group; group++) {
        if (group > first_group) {
            for (var i = 0u; i < ROW_LOADS; i++) {
                let block = thread + i * WG;
                if (block < ROWS * 2u) {
                    let place = buffer * TILE + block % 2u * 4u * PITCH + COLUMNS + block / 2u;
                    let next = next_rows[i];
                    tile[place] = vec4<u32>(next.a.x, next.b.x, next.c.x, next.d.x);
                    tile[place + PITCH] = vec4<u32>(next.a.y, next.b.y, next.c.y, next.d.y);
                    tile[place + 2u * PITCH] = vec4<u32>(next.a.z, next.b.z, next.c.z, next.d.z);
                    tile[place + 3u * PITCH] = vec4<u32>(next.a.w, next.b.w, next.c.w, next.d.w);
                }
            }
            for (var i = 0u; i < COLUMN_LOADS; i++) {
                let block = thread + i * WG;
                if (block < COLUMNS * 4u) {
                    let place = buffer * TILE + block % 4u * PITCH + block / 4u;
                    tile[place] = evens_of(next_columns[i]);
                    tile[place + 4u * PITCH] = odds_of(next_columns[i]);
                }
            }
            for (var i = 0u; i < FACTOR_LOADS; i++) {
                let four = thread + i * WG;
                if (four < COLUMNS) {
                    scale_of_columns[buffer * COLUMNS + four] = code_scale(next_factors[i]);
                    if (MINIMA || GROUP == 16u) {
                        minimum_of_columns[buffer * COLUMNS + four] = next_terms[i];
                    }
                } else if (four < COLUMNS + ROWS) {
                    step_of_rows[buffer * ROWS + four - COLUMNS] = next_factors[i];
                    if (ASYMMETRIC) {
                        zero_of_rows[buffer * ROWS + four - COLUMNS] = next_zeros[i];
                    }
                    if (MINIMA) {
                        total_of_rows[buffer * ROWS + four - COLUMNS] = next_terms[i];
                    }
                }
            }
            workgroupBarrier();
        }
        if (group < last_group) {
            for (var i = 0u; i < ROW_LOADS; i++) {
                let block = thread + i * WG;
                if (block < ROWS * 2u) {
                    next_rows[i] = words_of_rows(first_row + block / 2u * 4u, group, block % 2u);
                }
            }
            for (var i = 0u; i < COLUMN_LOADS; i++) {
                let block = thread + i * WG;
                if (block < COLUMNS * 4u) {
                    next_columns[i] = eights_of_columns(first_column + block / 4u * 4u, group, block % 4u);
                }
            }
            for (var i = 0u; i < FACTOR_LOADS; i++) {
                let four = thread + i * WG;
                if (four < COLUMNS) {
                    let of_column = min(first_column + four * 4u, params.columns - 1u);
                    next_factors[i] = scale_four(of_column, group * 32u);
                    if (GROUP == 16u) {
                        next_terms[i] = scale_four(of_column, group * 32u + 16u);
                    } else {
                        next_terms[i] = minimum_four(of_column, group * 32u);
                    }
                } else if (four < COLUMNS + ROWS) {
                    let of_row = first_row + (four - COLUMNS) * 4u;
                    next_factors[i] = floats_of_rows(of_row, group, 0u);
                    if (ASYMMETRIC) {
                        next_zeros[i] = floats_of_rows(of_row, group, 2u);
                    }
                    if (MINIMA) {
                        next_terms[i] = floats_of_rows(of_row, group, 1u);
                    }
                }
            }
        }
        if (group > first_group) {
            var sums = Blocks(sums_0, sums_1, sums_2, sums_3);
            var found = plus_word(plus_word(nothing(), buffer, row, column, 0u), buffer, row, column, 1u);
            found = plus_word(plus_word(found, buffer, row, column, 4u), buffer, row, column, 5u);
            // The first 16 places are words 0, 1, 4 and 5.
            if (GROUP == 16u) {
                sums = plus_found(sums, found, buffer, row, column, false);
                found = nothing();
            }
            found = plus_word(plus_word(found, buffer, row, column, 2u), buffer, row, column, 3u);
            found = plus_word(plus_word(found, buffer, row, column, 6u), buffer, row, column, 7u);
            sums = plus_found(sums, found, buffer, row, column, GROUP == 16u);
            sums_0 = sums.upper;
            sums_1 = sums.lower;
            sums_2 = sums.upper_beside;
            sums_3 = sums.lower_beside;
            if (BUFFERS == 2u) {
                buffer = 1u - buffer;
            } else {
                workgroupBarrier();
            }
        }
    }
    if (BUFFERS == 2u) {
        workgroupBarrier(); // before the next tile takes this one's place
    }
    store_block(first_row + row * 4u, first_column + column * 4u, sums_0);
    if (ROW_VEC4S == 2u) {
        store_block(first_row + (row + THREADS_Y) * 4u, first_column + column * 4u, sums_1);
    }
    if (COLUMN_VEC4S == 2u) {
        store_block(first_row + row * 4u, first_column + (column + THREADS_X) * 4u, sums_2);
        if (ROW_VEC4S == 2u) {
            store_block(first_row + (row + THREADS_Y) * 4u, first_column + (column + THREADS_X) * 4u, sums_3);
        }
    }
}

#include q4/tile_grid
