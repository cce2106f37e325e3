// A convolution as implicit GEMM for devices with many threads: a thread sums THREAD_ROWS output channels by
// 4 * THREAD_FOURS pixels in registers. Weights lie along the depth in workgroup memory, pixels beside each other; the
// next step of both is prefetched to registers.
// unchecked: places in tiles follow from constants; channels, pixels and the depth are held below those of the tensors.
// composable with light expressions: a sum is stored once, from registers that the loop over the depth needs.
// T: f32, f16
override WG: u32 = 256;
override TILE_ROWS: u32 = 128;
override TILE_COLUMNS: u32 = 128;
override THREAD_ROWS: u32 = 8;
override THREAD_FOURS: u32 = 2; // pixels, in fours
override STEP_FOURS: u32 = 2; // of the depth, that are staged at a time
override LEFT_LOADS: u32 = 1; // vectors that a thread stages in a step
override RIGHT_LOADS: u32 = 1;

const STEP: u32 = 4 * STEP_FOURS;
const COLUMN_THREADS: u32 = TILE_COLUMNS / (4 * THREAD_FOURS);
const ROW_THREADS: u32 = TILE_ROWS / THREAD_ROWS;
const COLUMN_FOURS: u32 = TILE_COLUMNS / 4; // at most WG: a thread stages the same pixels of every step
const SWIZZLE: u32 = 8 / STEP_FOURS; // rows that lie in all banks together

#include common/multiply_add
#include common/quotient
#include convolution/tile

var<workgroup> left_tile: array<vec4<f32>, TILE_ROWS * STEP_FOURS>;
var<workgroup> right_tile: array<vec4<f32>, STEP * COLUMN_FOURS>;

// Where the windows of four pixels begin.
struct Windows {
    z: vec4<i32>,
    y: vec4<i32>,
    x: vec4<i32>,
    start: vec4<i32>,
}

// Of a row. Neighbouring rows have their vectors in different banks.
fn place_of(row: u32, four: u32) -> u32 {
    return row * STEP_FOURS + (four ^ (row / SWIZZLE % STEP_FOURS));
}

fn windows_at(tile: Tile, column: u32) -> Windows {
    let a = pixel_at(tile, column).window;
    let b = pixel_at(tile, column + 1u).window;
    let c = pixel_at(tile, column + 2u).window;
    let d = pixel_at(tile, column + 3u).window;
    return Windows(
        vec4<i32>(a.x, b.x, c.x, d.x), vec4<i32>(a.y, b.y, c.y, d.y), vec4<i32>(a.z, b.z, c.z, d.z),
        vec4<i32>(a.w, b.w, c.w, d.w),
    );
}

fn left_four(tile: Tile, start: u32, k: u32) -> vec4<f32> {
    var four = vec4<f32>();
    if (V_lanes == 4u) {
        if (k < tile.last_k) {
            let lanes = V_math(weight[(start + k) / V_lanes]);
            four = vec4<f32>(V_at(lanes, 0u), V_at(lanes, 1u), V_at(lanes, 2u), V_at(lanes, 3u));
        }
    } else {
        for (var j = 0u; j < 4u; j++) {
            if (k + j < tile.last_k) {
                four[j] = V_at(V_math(weight[start + k + j]), 0u);
            }
        }
    }
    return four;
}

fn is_inside(first: vec4<i32>, step: i32, size: u32) -> vec4<bool> {
    // A negative index is a very large one.
    return vec4<u32>(first + step) < vec4<u32>(size);
}

fn right_four(tile: Tile, windows: Windows, k: u32) -> vec4<f32> {
    let channel = quotient(k, params.kernel.w);
    let across = quotient(k, params.kernel.z);
    let along = quotient(across, params.kernel.y);
    let tap = vec3<u32>(along - channel * params.kernel.x, across - along * params.kernel.y, k - across * params.kernel.z);
    let step = vec3<i32>(tap * params.dilation.xyz);
    let inside = is_inside(windows.z, step.x, params.extents.x) & is_inside(windows.y, step.y, params.extents.y)
        & is_inside(windows.x, step.z, params.extents.z) & vec4<bool>(k < tile.last_k);
    // What is outside reads the first pixel instead, and makes it zero.
    let offset = i32(channel * params.extents.w) + place_in(params.extents, step);
    let places = vec4<u32>(select(vec4<i32>(), windows.start + offset, inside));
    return select(vec4<f32>(), vec4<f32>(f32(x[places.x]), f32(x[places.y]), f32(x[places.z]), f32(x[places.w])), inside);
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
    let depth = params.channels * params.kernel.w;
    let windows = windows_at(tile, tile.first_column + thread % COLUMN_FOURS * 4u);
    // Rows behind the last are loaded like it, and not stored.
#unroll i < LEFT_LOADS
    let left_row_$i = (thread + $iu * WG) / STEP_FOURS;
    let left_k_$i = (thread + $iu * WG) % STEP_FOURS;
    let left_place_$i = place_of(left_row_$i, left_k_$i);
    let left_start_$i = (tile.group * params.rows + min(tile.first_row + left_row_$i, params.rows - 1u)) * depth;
    var left_$i = left_four(tile, left_start_$i, tile.first_k + left_k_$i * 4u);
#endunroll
#unroll i < RIGHT_LOADS
    let right_k_$i = (thread + $iu * WG) / COLUMN_FOURS;
    var right_$i = right_four(tile, windows, tile.first_k + right_k_$i);
#endunroll
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
        right_tile[thread + $iu * WG] = right_$i;
#endunroll
        workgroupBarrier();
        let ahead = k + STEP;
        if (ahead < tile.last_k) {
#unroll i < LEFT_LOADS
            left_$i = left_four(tile, left_start_$i, ahead + left_k_$i * 4u);
#endunroll
#unroll i < RIGHT_LOADS
            right_$i = right_four(tile, windows, ahead + right_k_$i);
#endunroll
        }
#unroll f < STEP_FOURS
        {
#unroll g < THREAD_FOURS
            let place_$g = 4u * $fu * COLUMN_FOURS + column + $gu * COLUMN_THREADS;
            let block_$g = mat4x4<f32>(
                right_tile[place_$g], right_tile[place_$g + COLUMN_FOURS], right_tile[place_$g + 2u * COLUMN_FOURS],
                right_tile[place_$g + 3u * COLUMN_FOURS],
            );
#endunroll
#unroll r < THREAD_ROWS
            let row_$r = left_tile[place_of(row + $ru * ROW_THREADS, $fu)];
#unroll g < THREAD_FOURS
            sum_$r_$g = plus_columns(sum_$r_$g, block_$g, row_$r);
#endunroll
#endunroll
        }
#endunroll
        workgroupBarrier();
    }
#unroll g < THREAD_FOURS
    {
        let first = tile.first_column + (column + $gu * COLUMN_THREADS) * 4u;
        let places = vec4<u32>(
            pixel_at(tile, first).place, pixel_at(tile, first + 1u).place, pixel_at(tile, first + 2u).place,
            pixel_at(tile, first + 3u).place,
        );
#unroll r < THREAD_ROWS
        store_four(tile, tile.first_row + row + $ru * ROW_THREADS, places, sum_$r_$g);
#endunroll
    }
#endunroll
}

fn store_four(tile: Tile, channel: u32, places: vec4<u32>, sums: vec4<f32>) {
    if (channel >= params.rows) {
        return;
    }
    var values = sums;
    if (BIAS) {
        values += f32(bias[tile.group * params.rows + channel]);
    }
    for (var c = 0u; c < 4u; c++) {
        if (places[c] != INVALID) {
            out[tile.split * params.split_stride + places[c] + channel * params.outputs.w] = TOut(clamped(values[c]));
        }
    }
}
