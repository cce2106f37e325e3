// GEMM for a device with few threads, whose loads and barriers are expensive and whose shuffles are not: a workgroup is one
// subgroup, and a tile of sums lies in registers. A lane sums four columns of SHARES * WG rows. It loads four of the depth
// of these columns, and of the rows its share, which all lanes get by shuffles.
// composable: a sum is stored once.
// unchecked: rows and columns behind the last are loaded like it, and the depth ends where it ends.
// T: f32, f16
override WG: u32 = 8; // the size of a subgroup
override SHARES: u32 = 2; // rows that a lane loads
override LANES: u32 = 8; // of the subgroup: WG again, for loops in the text

const TILE_ROWS: u32 = SHARES * WG;
const TILE_COLUMNS: u32 = 4 * WG;

#include common/multiply_add
#include matmul/operands
#include matmul/tile

// Of four columns, four neighbours along the depth each.
fn columns_of(starts: vec4<u32>, k: u32) -> mat4x4<f32> {
    if (TRANSPOSED) {
        let places = starts + along_line(k);
        return mat4x4<f32>(
            weight_four(places.x), weight_four(places.y), weight_four(places.z), weight_four(places.w),
        );
    }
    return transpose(mat4x4<f32>(
        columns_at(starts, k), columns_at(starts, k + 1u), columns_at(starts, k + 2u), columns_at(starts, k + 3u),
    ));
}

fn columns_at(starts: vec4<u32>, k: u32) -> vec4<f32> {
    let places = starts + select(params.columns * k, along_line(k), TRANSPOSED);
    if (!TRANSPOSED && V_lanes == 4u) {
        return weight_four(places.x);
    }
    return vec4<f32>(weight_one(places.x), weight_one(places.y), weight_one(places.z), weight_one(places.w));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tile = tile_at(group_index(group, grid));
    if (!tile.exists) {
        return;
    }
#unroll s < SHARES
    let row_$s = min(tile.first_row + $su * WG + lane, params.rows - 1u);
    let start_$s = tile.batch * params.x_stride + row_$s * params.depth;
#unroll l < LANES
    var sum_$s_$l = vec4<f32>();
#endunroll
#endunroll
    let first_column = tile.first_column + 4u * lane;
    let columns = min(vec4<u32>(first_column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.columns - 1u));
    let starts = tile.batch * params.weight_stride + columns * select(1u, line_step(), TRANSPOSED);
    let last_k = tile.first_k + (tile.last_k - tile.first_k) / 4u * 4u;
    for (var k = tile.first_k; k < last_k; k += 4u) {
        let block = columns_of(starts, k);
#unroll s < SHARES
        let share_$s = x_four(start_$s + k);
#unroll l < LANES
        sum_$s_$l = plus_product(sum_$s_$l, subgroupShuffle(share_$s, $lu), block);
#endunroll
#endunroll
    }
    if (V_lanes == 1u) {
        for (var k = last_k; k < tile.last_k; k++) {
            let four = columns_at(starts, k);
#unroll s < SHARES
            let one_$s = x_one(start_$s + k);
#unroll l < LANES
            sum_$s_$l = fma(vec4<f32>(subgroupShuffle(one_$s, $lu)), four, sum_$s_$l);
#endunroll
#endunroll
        }
    }
    // In an array, so that a loop stores them: the text of all stores would take seconds to compile.
    var sums: array<vec4<f32>, TILE_ROWS>;
#unroll s < SHARES
#unroll l < LANES
    sums[$su * WG + $lu] = sum_$s_$l;
#endunroll
#endunroll
    for (var i = 0u; i < 4u * TILE_ROWS; i++) {
        store_product(tile.result, tile.first_row + i / 4u, first_column + i % 4u, sums[i / 4u][i % 4u]);
    }
}
