// GEMM of floats for devices with many threads: a thread sums THREAD_ROWS by 4 * THREAD_FOURS of a tile in registers, and
// both factors are staged in workgroup memory a step of the depth at a time, the next one prefetched to registers.
// The left tile lies along the depth, the right one as its factor does: along the depth where TRANSPOSED, else along
// its columns. Every sum is taken along the depth from its first element on, whatever the sizes of tiles are.
// composable with light expressions: a sum is stored once, from registers that the loop over the depth needs.
// unchecked: places in tiles follow from constants; rows, columns and the depth are held below those of the tensors.
// T: f32, f16
override WG: u32 = 256;
override TILE_ROWS: u32 = 128;
override TILE_COLUMNS: u32 = 128;
override THREAD_ROWS: u32 = 8;
override THREAD_FOURS: u32 = 2; // columns, in fours
override STEP_FOURS: u32 = 4; // of the depth, that are staged at a time
override UNROLLED: u32 = 1; // of these, that are multiplied in one text: more of them take more registers
override LEFT_LOADS: u32 = 2; // vectors that a thread stages in a step
override RIGHT_LOADS: u32 = 2;

const STEP: u32 = 4 * STEP_FOURS;
const COLUMN_THREADS: u32 = TILE_COLUMNS / (4 * THREAD_FOURS);
const ROW_THREADS: u32 = TILE_ROWS / THREAD_ROWS;
const FOUR_STRIDE: u32 = select(1u, 4u, TRANSPOSED) * COLUMN_THREADS; // from a thread's four columns to its next
const COLUMN_FOURS: u32 = TILE_COLUMNS / 4;
const PITCH: u32 = STEP_FOURS + 1; // of lines along the depth: one more, so that neighbouring ones lie in different banks

var<workgroup> left_tile: array<vec4<f32>, TILE_ROWS * PITCH>;
var<workgroup> right_tile: array<vec4<f32>, TILE_COLUMNS * PITCH>;

#include common/multiply_add
#include matmul/operands
#include matmul/tile

fn left_four(start: u32, k: u32) -> vec4<f32> {
    if (V_lanes == 4u) {
        return select(vec4<f32>(), x_four(select(0u, start + k, k < params.depth)), k < params.depth);
    }
    return x_within(start + k, max(params.depth, k) - k);
}

fn right_four(start: u32, column: u32, k: u32) -> vec4<f32> {
    let place = start + select(params.columns, 1u, TRANSPOSED) * k;
    let exists = k < params.depth && column < params.columns;
    if (V_lanes == 4u) {
        return select(vec4<f32>(), weight_four(select(0u, place, exists)), exists);
    }
    return weight_within(place, select(0u, select(params.columns - column, params.depth - k, TRANSPOSED), exists));
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
    let column = thread % COLUMN_THREADS;
    let row = thread / COLUMN_THREADS;
    // Rows and columns behind the last are loaded like it, and not stored.
    let x_start = tile.batch * params.x_stride;
    let weight_start = tile.batch * params.weight_stride;
#unroll i < LEFT_LOADS
    let left_line_$i = (thread + $iu * WG) / STEP_FOURS;
    let left_four_$i = (thread + $iu * WG) % STEP_FOURS;
    let left_place_$i = left_line_$i * PITCH + left_four_$i;
    let left_start_$i = x_start + min(tile.first_row + left_line_$i, params.rows - 1u) * params.depth;
    var left_$i = left_four(left_start_$i, tile.first_k + left_four_$i * 4u);
#endunroll
#if TRANSPOSED == true
#unroll i < RIGHT_LOADS
    let right_line_$i = (thread + $iu * WG) / STEP_FOURS;
    let right_k_$i = (thread + $iu * WG) % STEP_FOURS * 4u;
    let right_place_$i = right_line_$i * PITCH + right_k_$i / 4u;
    let right_column_$i = min(tile.first_column + right_line_$i, params.columns - 1u);
    let right_start_$i = weight_start + right_column_$i * params.depth;
    var right_$i = right_four(right_start_$i, right_column_$i, tile.first_k + right_k_$i);
#endunroll
#else
#unroll i < RIGHT_LOADS
    let right_place_$i = thread + $iu * WG;
    let right_k_$i = right_place_$i / COLUMN_FOURS;
    let right_column_$i = tile.first_column + right_place_$i % COLUMN_FOURS * 4u;
    let right_start_$i = weight_start + right_column_$i;
    var right_$i = right_four(right_start_$i, right_column_$i, tile.first_k + right_k_$i);
#endunroll
#endif
#unroll r < THREAD_ROWS
#unroll g < THREAD_FOURS
    var sum_$r_$g = vec4<f32>();
#endunroll
#endunroll
    for (var k = tile.first_k; k < tile.last_k; k += STEP) {
#unroll i < LEFT_LOADS
        left_tile[left_place_$i] = left_$i;
#endunroll
#unroll i < RIGHT_LOADS
        right_tile[right_place_$i] = right_$i;
#endunroll
        workgroupBarrier();
        let ahead = k + STEP;
        if (ahead < tile.last_k) {
#unroll i < LEFT_LOADS
            left_$i = left_four(left_start_$i, ahead + left_four_$i * 4u);
#endunroll
#unroll i < RIGHT_LOADS
            right_$i = right_four(right_start_$i, right_column_$i, ahead + right_k_$i);
#endunroll
        }
        for (var first = 0u; first < STEP_FOURS; first += UNROLLED) {
#unroll f < UNROLLED
            {
                let four = first + $fu;
#unroll g < THREAD_FOURS
#if TRANSPOSED == true
                let place_$g = (column + $gu * FOUR_STRIDE) * PITCH + four;
                let block_$g = mat4x4<f32>(
                    right_tile[place_$g], right_tile[place_$g + COLUMN_THREADS * PITCH],
                    right_tile[place_$g + 2u * COLUMN_THREADS * PITCH], right_tile[place_$g + 3u * COLUMN_THREADS * PITCH],
                );
#else
                let place_$g = 4u * four * COLUMN_FOURS + column + $gu * COLUMN_THREADS;
                let block_$g = mat4x4<f32>(
                    right_tile[place_$g], right_tile[place_$g + COLUMN_FOURS], right_tile[place_$g + 2u * COLUMN_FOURS],
                    right_tile[place_$g + 3u * COLUMN_FOURS],
                );
#endif
#endunroll
#unroll r < THREAD_ROWS
                let row_$r = left_tile[(row + $ru * ROW_THREADS) * PITCH + four];
#unroll g < THREAD_FOURS
#if TRANSPOSED == true
                sum_$r_$g = plus_product(sum_$r_$g, row_$r, block_$g);
#else
                sum_$r_$g = plus_columns(sum_$r_$g, block_$g, row_$r);
#endif
#endunroll
#endunroll
            }
#endunroll
        }
        workgroupBarrier();
    }
#unroll r < THREAD_ROWS
#unroll g < THREAD_FOURS
    store_four(tile, row + $ru * ROW_THREADS, column + $gu * FOUR_STRIDE, sum_$r_$g);
#endunroll
#endunroll
}

fn store_four(tile: Tile, row: u32, place: u32, four: vec4<f32>) {
    for (var c = 0u; c < 4u; c++) {
        let column = select(place * 4u + c, place + c * COLUMN_THREADS, TRANSPOSED);
        store_product(tile.result, tile.first_row + row, tile.first_column + column, four[c]);
    }
}
