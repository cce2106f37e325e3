// GEMM in tiles of TILE_ROWS by TILE_COLUMNS that a workgroup stages in its memory, 16 of the depth at a time.
// Both tiles keep the depth innermost, in vec4s, so one thread's step is a vector times a 4 x 4 block.
// The FACTORS are those of a matrix product or of a convolution, and say where the sums go.
// composable with light expressions: a sum is stored once, from registers that the loop over the depth needs.
#choice FACTORS: matrices, convolution
// T: f32, f16
override WG: u32 = 256;
override TILE_ROWS: u32 = 64;
override TILE_COLUMNS: u32 = 64;

const DEPTH_VEC4S: u32 = 4; // of the depth
const STEP: u32 = DEPTH_VEC4S * 4;
const PITCH: u32 = DEPTH_VEC4S + 1; // one more, so that neighbouring columns lie in different banks
const COLUMN_THREADS: u32 = TILE_COLUMNS / 4;
const ROW_THREADS: u32 = WG / COLUMN_THREADS;
const THREAD_ROWS: u32 = (TILE_ROWS + ROW_THREADS - 1) / ROW_THREADS;

var<workgroup> tile_left: array<vec4<f32>, THREAD_ROWS * ROW_THREADS * PITCH>;
var<workgroup> tile_right: array<vec4<f32>, TILE_COLUMNS * PITCH>;

#include common/multiply_add
#if FACTORS == convolution
#include convolution/factors
#else
#include matmul/factors
#endif

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
    begin(thread, tile);
    let column = thread % COLUMN_THREADS;
    let row = thread / COLUMN_THREADS;
    var sums: array<vec4<f32>, THREAD_ROWS>;
    for (var k = tile.first_k; k < tile.last_k; k += STEP) {
        load_left(thread, tile, k);
        load_right(thread, tile, k);
        workgroupBarrier();
        for (var four = 0u; four < DEPTH_VEC4S; four++) {
            let block = mat4x4<f32>(
                tile_right[column * PITCH + four],
                tile_right[(column + COLUMN_THREADS) * PITCH + four],
                tile_right[(column + 2u * COLUMN_THREADS) * PITCH + four],
                tile_right[(column + 3u * COLUMN_THREADS) * PITCH + four],
            );
            for (var r = 0u; r < THREAD_ROWS; r++) {
                sums[r] = plus_product(sums[r], tile_left[(row + r * ROW_THREADS) * PITCH + four], block);
            }
        }
        prefetch(thread, tile, k + STEP);
        workgroupBarrier();
    }
    for (var r = 0u; r < THREAD_ROWS; r++) {
        let tile_row = row + r * ROW_THREADS;
        if (tile_row < TILE_ROWS) {
            for (var c = 0u; c < 4u; c++) {
                store_sum(tile, tile_row, column + c * COLUMN_THREADS, sums[r][c]);
            }
        }
    }
}
