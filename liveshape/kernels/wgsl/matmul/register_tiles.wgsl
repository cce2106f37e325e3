// GEMM in registers for devices with many threads: a thread sums 4 * THREAD_ROW_FOURS by 4 * THREAD_COLUMN_FOURS of a
// tile, and both factors are staged in workgroup memory a step of the depth at a time. There both lie along their rows
// and columns, so that an element of the depth is an outer product of a few vectors, which needs the fewest registers.
// What lies along the depth in memory is loaded as blocks of four by four, and turned on its way. The next step is
// prefetched to registers where tiles are few; where they are many, more workgroups that run at once gain more.
// Every sum is taken along the depth from its first element on, whatever the tile.
// The FACTORS are those of a matrix product or of a convolution, and say where the sums go.
// composable: a sum is stored once, by one text for all.
// unchecked: places in tiles follow from constants; rows, columns and the depth are held below those of the tensors.
#choice FACTORS: matrices, convolution
// T: f32, f16
override WG: u32 = 128;
override TILE_ROWS: u32 = 128;
override TILE_COLUMNS: u32 = 64;
override THREAD_ROW_FOURS: u32 = 2;
override THREAD_COLUMN_FOURS: u32 = 2;
override STEP_FOURS: u32 = 4; // of the depth, that are staged at a time
override UNROLLED: u32 = 1; // of these, that are multiplied in one text
override FOUR: u32 = 4; // for loops in the text
override AHEAD: bool = false; // whether the next step is prefetched
override LEFT_LOADS: u32 = 1; // blocks that a thread stages in a step
override RIGHT_LOADS: u32 = 2; // vectors along the columns, or blocks where the right factor is TRANSPOSED

const STEP: u32 = 4 * STEP_FOURS;
const ROW_FOURS: u32 = TILE_ROWS / 4;
const COLUMN_FOURS: u32 = TILE_COLUMNS / 4; // a divisor of WG: a thread stages the same columns in every step
const COLUMN_THREADS: u32 = COLUMN_FOURS / THREAD_COLUMN_FOURS;
const ROW_THREADS: u32 = ROW_FOURS / THREAD_ROW_FOURS;
const LEFT_BLOCKS: u32 = ROW_FOURS * STEP_FOURS;
const RIGHT_BLOCKS: u32 = COLUMN_FOURS * STEP_FOURS;

// Of the left tile; and of the rows of sums that are stored together.
const LEFT_SIZE: u32 = max(STEP * ROW_FOURS, ROW_THREADS * COLUMN_FOURS);

var<workgroup> left_tile: array<vec4<f32>, LEFT_SIZE>;
var<workgroup> right_tile: array<vec4<f32>, STEP * COLUMN_FOURS>;

#include common/multiply_add
#if FACTORS == convolution
#include convolution/register_factors
#else
#include matmul/register_factors
#endif

// Where four rows or columns lie, in a tile that has `fours` such, at the first of four elements of the depth. Blocks that
// neighbouring threads store, one behind the other along the depth, lie in different banks.
fn place_in_tile(depth_four: u32, four: u32, fours: u32) -> u32 {
    return depth_four * 4u * fours + (four ^ (depth_four * 2u % min(fours, 8u)));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let tile = tile_at(group_index(group, grid));
    if (!tile.exists) {
        return;
    }
    // Rows and columns behind the last are loaded like it, or as zeros, and not stored.
#unroll i < LEFT_LOADS
    let left_line_$i = (thread + $iu * WG) / STEP_FOURS;
    let left_k_$i = (thread + $iu * WG) % STEP_FOURS;
    let left_place_$i = place_in_tile(left_k_$i, left_line_$i, ROW_FOURS);
    let left_starts_$i = left_starts(tile, tile.first_row + left_line_$i * 4u);
    var left_$i = mat4x4<f32>();
#endunroll
#if TRANSPOSED == true
#unroll i < RIGHT_LOADS
    let right_line_$i = (thread + $iu * WG) / STEP_FOURS;
    let right_k_$i = (thread + $iu * WG) % STEP_FOURS;
    let right_place_$i = place_in_tile(right_k_$i, right_line_$i, COLUMN_FOURS);
    let right_starts_$i = right_starts(tile, tile.first_column + right_line_$i * 4u);
    var right_$i = mat4x4<f32>();
#endunroll
#else
    let columns = columns_at(tile, tile.first_column + thread % COLUMN_FOURS * 4u);
#unroll i < RIGHT_LOADS
    let right_k_$i = (thread + $iu * WG) / COLUMN_FOURS;
    let right_place_$i = place_in_tile(right_k_$i / 4u, thread % COLUMN_FOURS, COLUMN_FOURS) + right_k_$i % 4u * COLUMN_FOURS;
    var right_$i = vec4<f32>();
#endunroll
#endif
    // Neighbouring threads have other rows, the next but one other columns: shared memory serves eight threads at a time,
    // and sixteen where each has an address with the next one, or with the next but one.
    let column = thread / 2u % COLUMN_THREADS;
    let row = thread % 2u + thread / (2u * COLUMN_THREADS) * 2u;
#unroll r < THREAD_ROW_FOURS
#unroll c < THREAD_COLUMN_FOURS
    var sums_$r_$c = mat4x4<f32>();
#endunroll
#endunroll
    for (var k = tile.first_k; k < tile.last_k; k += STEP) {
        if (!AHEAD || k == tile.first_k) {
#unroll i < LEFT_LOADS
            left_$i = mat4x4<f32>(); // nothing is kept in registers from step to step
            if (LEFT_BLOCKS % WG == 0u || thread + $iu * WG < LEFT_BLOCKS) {
                left_$i = left_block(tile, left_starts_$i, k + left_k_$i * 4u);
            }
#endunroll
#unroll i < RIGHT_LOADS
#if TRANSPOSED == true
            right_$i = mat4x4<f32>();
            if (RIGHT_BLOCKS % WG == 0u || thread + $iu * WG < RIGHT_BLOCKS) {
                right_$i = right_block(tile, right_starts_$i, k + right_k_$i * 4u);
            }
#else
            right_$i = right_four(tile, columns, k + right_k_$i);
#endif
#endunroll
        }
#unroll i < LEFT_LOADS
        if (LEFT_BLOCKS % WG == 0u || thread + $iu * WG < LEFT_BLOCKS) {
            let block = transpose(left_$i);
#unroll j < FOUR
            left_tile[left_place_$i + $ju * ROW_FOURS] = block[$j];
#endunroll
        }
#endunroll
#unroll i < RIGHT_LOADS
#if TRANSPOSED == true
        if (RIGHT_BLOCKS % WG == 0u || thread + $iu * WG < RIGHT_BLOCKS) {
            let block = transpose(right_$i);
#unroll j < FOUR
            right_tile[right_place_$i + $ju * COLUMN_FOURS] = block[$j];
#endunroll
        }
#else
        right_tile[right_place_$i] = right_$i;
#endif
#endunroll
        workgroupBarrier();
#if AHEAD == true
        let ahead = k + STEP;
        if (ahead < tile.last_k) {
#unroll i < LEFT_LOADS
            if (LEFT_BLOCKS % WG == 0u || thread + $iu * WG < LEFT_BLOCKS) {
                left_$i = left_block(tile, left_starts_$i, ahead + left_k_$i * 4u);
            }
#endunroll
#unroll i < RIGHT_LOADS
#if TRANSPOSED == true
            if (RIGHT_BLOCKS % WG == 0u || thread + $iu * WG < RIGHT_BLOCKS) {
                right_$i = right_block(tile, right_starts_$i, ahead + right_k_$i * 4u);
            }
#else
            right_$i = right_four(tile, columns, ahead + right_k_$i);
#endif
#endunroll
        }
#endif
        for (var first = 0u; first < STEP_FOURS; first += UNROLLED) {
#unroll f < UNROLLED
            {
#unroll r < THREAD_ROW_FOURS
                let row_place_$r = place_in_tile(first + $fu, row + $ru * ROW_THREADS, ROW_FOURS);
#endunroll
#unroll c < THREAD_COLUMN_FOURS
                let column_place_$c = place_in_tile(first + $fu, column + $cu * COLUMN_THREADS, COLUMN_FOURS);
#endunroll
#unroll j < FOUR
#unroll r < THREAD_ROW_FOURS
                let rows_$r_$j = left_tile[row_place_$r + $ju * ROW_FOURS];
#endunroll
#unroll c < THREAD_COLUMN_FOURS
                let columns_$c_$j = right_tile[column_place_$c + $ju * COLUMN_FOURS];
#endunroll
#unroll r < THREAD_ROW_FOURS
#unroll c < THREAD_COLUMN_FOURS
                sums_$r_$c = plus_outer(sums_$r_$c, rows_$r_$j, columns_$c_$j);
#endunroll
#endunroll
#endunroll
            }
#endunroll
        }
        workgroupBarrier();
    }
    // By way of workgroup memory, a row of each four at a time: neighbouring threads store neighbours, and the text of a
    // store, with the epilogue in it, is there once.
    var target_column = target_at(tile, tile.first_column + thread % TILE_COLUMNS);
    for (var part = 0u; part < 4u * THREAD_ROW_FOURS; part++) {
#unroll r < THREAD_ROW_FOURS
#unroll j < FOUR
        if (part == 4u * $ru + $ju) {
#unroll c < THREAD_COLUMN_FOURS
            left_tile[row * COLUMN_FOURS + column + $cu * COLUMN_THREADS] = sums_$r_$c[$j];
#endunroll
        }
#endunroll
#endunroll
        workgroupBarrier();
        let first_row = tile.first_row + part / 4u * ROW_THREADS * 4u + part % 4u;
        for (var i = thread; i < ROW_THREADS * TILE_COLUMNS; i += WG) {
            if (WG % TILE_COLUMNS != 0u) { // else a thread stores one column
                target_column = target_at(tile, tile.first_column + i % TILE_COLUMNS);
            }
            store_sum(tile, first_row + i / TILE_COLUMNS * 4u, target_column, left_tile[i / 4u][i % 4u]);
        }
        workgroupBarrier();
    }
}
