// 4-bit GEMM of rows of floats: a workgroup stages a tile of both factors in its memory, dequantized, a step of the
// depth at a time and the depth outermost, and a thread keeps a block of sums in registers. The next step is prefetched
// to registers while this one is computed.
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
// T: f32, f16
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 128;
override ROW_THREADS: u32 = 8;
override ROW_VEC4S: u32 = 2; // that a thread takes, 1 or 2
override TILE_DEPTH: u32 = 4; // of the tile, in vec4s
override SCALE_SPAN: u32 = 4; // how many neighbours of the depth surely share a scale: 4 or 1

const THREADS_Y: u32 = min(ROW_THREADS, WG); // a device may clamp the workgroup
const COLUMNS: u32 = WG / THREADS_Y; // of the tile, in vec4s
const ROWS: u32 = THREADS_Y * ROW_VEC4S;
const BLOCKS: u32 = (ROWS + COLUMNS) * TILE_DEPTH; // of 4 x 4 numbers
const STEP: u32 = TILE_DEPTH * 4;
const LOADS: u32 = (BLOCKS + WG - 1) / WG;
const PITCH: u32 = ROWS + COLUMNS + 1; // one more, so that neighbours of the depth lie in different banks

var<workgroup> tile: array<vec4<f32>, STEP * PITCH>;

#include common/multiply_add
#include q4/float_operands
#include q4/epilogue
#include q4/epilogue_block

fn block_of_x(row: u32, k: u32, last_k: u32) -> mat4x4<f32> {
    var rows = mat4x4<f32>();
    if (k < last_k) {
        let last = params.rows - 1u;
        rows = mat4x4<f32>(
            x_four(min(row, last), k),
            x_four(min(row + 1u, last), k),
            x_four(min(row + 2u, last), k),
            x_four(min(row + 3u, last), k),
        );
    }
    return transpose(rows);
}

fn block_of_weight(column: u32, k: u32, last_k: u32) -> mat4x4<f32> {
    var block = mat4x4<f32>();
    if (column < params.columns && k < last_k) {
        let last = params.columns - 1u;
        block = transpose(mat4x4<f32>(
            four_codes(column, k),
            four_codes(min(column + 1u, last), k),
            four_codes(min(column + 2u, last), k),
            four_codes(min(column + 3u, last), k),
        ));
        if (SCALE_SPAN == 4u) {
            let scale = scale_four(column, k);
            let minimum = minimum_four(column, k);
            block = mat4x4<f32>(
                dequantized(block[0], scale, minimum), dequantized(block[1], scale, minimum),
                dequantized(block[2], scale, minimum), dequantized(block[3], scale, minimum),
            );
        } else {
            block = mat4x4<f32>(
                dequantized_at(block[0], column, k),
                dequantized_at(block[1], column, k + 1u),
                dequantized_at(block[2], column, k + 2u),
                dequantized_at(block[3], column, k + 3u),
            );
        }
    }
    return block;
}

fn fetch(block: u32, first_row: u32, first_column: u32, first_k: u32, last_k: u32) -> mat4x4<f32> {
    let k = first_k + block % TILE_DEPTH * 4u;
    let four = block / TILE_DEPTH;
    if (four < COLUMNS) {
        return block_of_weight(first_column + four * 4u, k, last_k);
    }
    return block_of_x(first_row + (four - COLUMNS) * 4u, k, last_k);
}

fn compute(thread: u32, first_row: u32, first_column: u32, first_step: u32, last_step: u32) {
    let first_k = first_step * STEP;
    let last_k = min(last_step * STEP, params.depth);
    let column = thread % COLUMNS;
    let row = thread / COLUMNS;
    var upper = mat4x4<f32>();
    var lower = mat4x4<f32>();
    var next: array<mat4x4<f32>, LOADS>;
    for (var i = 0u; i < LOADS; i++) {
        next[i] = fetch(thread + i * WG, first_row, first_column, first_k, last_k);
    }
    for (var k = first_k; k < last_k; k += STEP) {
        for (var i = 0u; i < LOADS; i++) {
            let block = thread + i * WG;
            if (block < BLOCKS) {
                let place = block % TILE_DEPTH * 4u * PITCH + block / TILE_DEPTH;
                tile[place] = next[i][0];
                tile[place + PITCH] = next[i][1];
                tile[place + 2u * PITCH] = next[i][2];
                tile[place + 3u * PITCH] = next[i][3];
            }
        }
        workgroupBarrier();
        for (var i = 0u; i < LOADS; i++) {
            next[i] = fetch(thread + i * WG, first_row, first_column, k + STEP, last_k);
        }
        for (var i = 0u; i < STEP * PITCH; i += PITCH) {
            let four = tile[i + column];
            upper = plus_outer(upper, tile[i + COLUMNS + row], four);
            if (ROW_VEC4S == 2u) {
                lower = plus_outer(lower, tile[i + COLUMNS + row + THREADS_Y], four);
            }
        }
        workgroupBarrier();
    }
    store_block(first_row + row * 4u, first_column + column * 4u, upper);
    if (ROW_VEC4S == 2u) {
        store_block(first_row + (row + THREADS_Y) * 4u, first_column + column * 4u, lower);
    }
}

#include q4/tile_grid
