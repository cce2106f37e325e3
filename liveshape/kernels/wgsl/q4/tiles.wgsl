// 4-bit GEMM of rows of floats or of quantized ones: a workgroup stages a tile of both factors in its memory, a STEP of
// the depth at a time, and a thread keeps ROW_VEC4S by COLUMN_VEC4S blocks of 4 x 4 sums in registers. The next step is
// prefetched to registers while this one is computed. LARGE tiles of floats, of 128 by 128 with blocks of 8 by 8, have no
// such registers, so that two workgroups fit per multiprocessor: one computes while the other waits for memory. Their
// depth is a multiple of 16, four neighbours of which share a scale. Where the memory of a workgroup holds two tiles, one
// barrier is enough for a step.
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
#choice OPERANDS: floats, int8
override WG: u32 = 128;
override ROW_THREADS: u32 = 8;
override ROW_VEC4S: u32 = 2; // that a thread takes, 1 or 2
override COLUMN_VEC4S: u32 = 1; // that a thread takes, 1 or 2
override BUFFERS: u32 = 1; // of the tile, 1 or 2
override LARGE: bool = false;

const THREADS_Y: u32 = min(ROW_THREADS, WG); // a device may clamp the workgroup
const THREADS_X: u32 = WG / THREADS_Y;
const ROWS: u32 = THREADS_Y * ROW_VEC4S; // of the tile, in vec4s
const COLUMNS: u32 = THREADS_X * COLUMN_VEC4S;

#include common/multiply_add
#if OPERANDS == floats
#include q4/float_tiles
#else
#include q4/int8_tiles
#endif
#include q4/epilogue
#include q4/epilogue_block

fn compute(thread: u32, first_row: u32, first_column: u32, first_step: u32, last_step: u32) {
    var buffer = 0u;
#unroll r < ROW_VEC4S
#unroll c < COLUMN_VEC4S
    var sums_$r_$c = mat4x4<f32>();
#endunroll
#endunroll
#if OPERANDS == int8
    var totals: array<vec4<f32>, LOADS>;
#endif
#if LARGE
    // The threads of a subgroup take 4 by 8 blocks: fewer reads of the tile for all of them than in a line.
    let column = thread / 32u % 2u * 8u + thread % 8u;
    let row = thread / 64u * 4u + thread % 32u / 8u;
    for (var step = first_step; step < last_step; step++) {
        stage(thread, fetch(thread, first_row, first_column, step, last_step), buffer);
        workgroupBarrier();
#else
    let column = thread % THREADS_X;
    let row = thread / THREADS_X;
    var next: array<Load, LOADS>;
    for (var i = 0u; i < LOADS; i++) {
        next[i] = fetch(thread + i * WG, first_row, first_column, first_step, last_step);
    }
    for (var step = first_step; step < last_step; step++) {
        for (var i = 0u; i < LOADS; i++) {
            stage(thread + i * WG, next[i], buffer);
        }
        workgroupBarrier();
        for (var i = 0u; i < LOADS; i++) {
#if OPERANDS == int8
            if (ASYMMETRIC) {
                totals[i] = plus_total(totals[i], next[i]);
            }
#endif
            next[i] = fetch(thread + i * WG, first_row, first_column, step + 1u, last_step);
        }
#endif
#if OPERANDS == floats
        for (var k = 0u; k < STEP; k += UNROLLED) {
#unroll n < UNROLLED
            let place_$n = (k + $nu) * PITCH;
            let turn_$n = swizzle(k + $nu);
#unroll c < COLUMN_VEC4S
            let columns_$n_$c = tile[place_$n + (column ^ turn_$n) + $cu * THREADS_X];
#endunroll
#unroll r < ROW_VEC4S
            let rows_$n_$r = tile[place_$n + COLUMNS + (row ^ turn_$n) + $ru * THREADS_Y];
#unroll c < COLUMN_VEC4S
            sums_$r_$c = plus_outer(sums_$r_$c, rows_$n_$r, columns_$n_$c);
#endunroll
#endunroll
#endunroll
        }
#else
        let of_rows = buffer * TILE + row;
        let of_row = buffer * FACTORS + COLUMNS + row;
        // One vec4 of columns after the other: the integers of half a block take fewer registers.
#unroll c < COLUMN_VEC4S
        let of_columns_$c = buffer * TILE + ROW_TILE + column + $cu * THREADS_X;
        let of_column_$c = buffer * FACTORS + column + $cu * THREADS_X;
#unroll r < ROW_VEC4S
        var found_$r_$c = no_integers();
#endunroll
        // Unrolled: a loop costs more than its body. The first 16 places are words 0, 1, 4 and 5.
#unroll half < 2
#unroll n < 4
        let word_$half_$n_$c = $halfu * 2u + $nu % 2u + $nu / 2u * 4u;
        let four_$half_$n_$c = tile[of_columns_$c + word_$half_$n_$c * COLUMN_PITCH];
#unroll r < ROW_VEC4S
        let rows_$half_$n_$c_$r = tile[of_rows + word_$half_$n_$c * ROW_PITCH + $ru * THREADS_Y];
        found_$r_$c = plus_dots(found_$r_$c, rows_$half_$n_$c_$r, four_$half_$n_$c);
#endunroll
#endunroll
        if (GROUP == 16u || $halfu == 1u) {
            let scale = scale_of_half(of_column_$c, $halfu);
#unroll r < ROW_VEC4S
            sums_$r_$c = plus_scaled(sums_$r_$c, found_$r_$c, scale, of_row + $ru * THREADS_Y, of_column_$c);
            found_$r_$c = no_integers();
#endunroll
        }
#endunroll
#endunroll
#endif
        if (BUFFERS == 2u) {
            buffer = 1u - buffer;
        } else {
            workgroupBarrier();
        }
    }
    if (BUFFERS == 2u) {
        workgroupBarrier(); // before the next tile, or the totals, take this one's place
    }
#if OPERANDS == int8
    if (ASYMMETRIC) {
        for (var i = 0u; i < LOADS; i++) {
            if (thread + i * WG < FIRST_ROW_LOAD) {
                tile[thread + i * WG] = bitcast<vec4<u32>>(totals[i]);
            }
        }
        workgroupBarrier();
#unroll c < COLUMN_VEC4S
        let total_$c = total_of(column + $cu * THREADS_X);
#unroll r < ROW_VEC4S
        sums_$r_$c = less_zeros(sums_$r_$c, total_$c, first_row + (row + $ru * THREADS_Y) * 4u);
#endunroll
#endunroll
        workgroupBarrier();
    }
#endif
#unroll c < COLUMN_VEC4S
#unroll r < ROW_VEC4S
    store_block(
        first_row + (row + $ru * THREADS_Y) * 4u, first_column + (column + $cu * THREADS_X) * 4u, sums_$r_$c,
    );
#endunroll
#endunroll
}

#include q4/tile_grid
