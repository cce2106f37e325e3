// A convolution for a device with few threads, whose loads and barriers are expensive and whose shuffles are not: a
// workgroup is one subgroup, and a tile of sums lies in registers. A lane has TILE_ROWS output channels of four pixels.
// It loads these four for each step of the depth, and of the weights its share, which all lanes get by shuffles.
// Taps are the outer loop: whether one is inside of the image is asked once for all channels.
// composable: a sum is stored once.
// T: f32, f16
override WG: u32 = 8; // the size of a subgroup, at least 4
override TILE_ROWS: u32 = 16; // 4, 8 or 16

const TILE_COLUMNS: u32 = 4 * WG;
const SHARE: u32 = (TILE_ROWS + WG - 1) / WG; // weights that a lane loads

#include common/multiply_add
#include convolution/tile

fn weight_of(shares: vec4<f32>, row: u32) -> f32 {
    return subgroupShuffle(shares[row / WG], row % WG);
}

fn weights_of(shares: vec4<f32>, row: u32) -> vec4<f32> {
    return vec4<f32>(
        weight_of(shares, row), weight_of(shares, row + 1u), weight_of(shares, row + 2u), weight_of(shares, row + 3u),
    );
}

fn load_share(places: vec4<u32>) -> vec4<f32> {
    var shares = vec4<f32>(f32(weight[places.x]));
    if (SHARE > 1u) {
        shares.y = f32(weight[places.y]);
    }
    if (SHARE > 2u) {
        shares.z = f32(weight[places.z]);
        shares.w = f32(weight[places.w]);
    }
    return shares;
}

fn is_inside(first: vec4<i32>, step: i32, extent: u32) -> vec4<bool> {
    // A negative index is a very large one.
    return vec4<u32>(first + step) < vec4<u32>(extent);
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
    let a = pixel_at(tile, tile.first_column + lane);
    let b = pixel_at(tile, tile.first_column + lane + WG);
    let c = pixel_at(tile, tile.first_column + lane + 2u * WG);
    let d = pixel_at(tile, tile.first_column + lane + 3u * WG);
    let first_z = vec4<i32>(a.window.x, b.window.x, c.window.x, d.window.x);
    let first_y = vec4<i32>(a.window.y, b.window.y, c.window.y, d.window.y);
    let first_x = vec4<i32>(a.window.z, b.window.z, c.window.z, d.window.z);
    let starts = vec4<i32>(a.window.w, b.window.w, c.window.w, d.window.w);
    // Rows behind the last one are computed like it, and not stored.
    let rows = min(vec4<u32>(tile.first_row + lane) + vec4<u32>(0u, 1u, 2u, 3u) * WG, vec4<u32>(params.rows - 1u));
    var weight_starts = (rows + tile.group * params.rows) * params.channels * params.kernel.w;
    var weight_step = params.kernel.w;
    if (TRANSPOSED) {
        weight_starts = (rows + tile.group * params.channels * params.rows) * params.kernel.w;
        weight_step = params.rows * params.kernel.w;
    }
    var sums_0 = mat4x4<f32>();
    var sums_1 = mat4x4<f32>();
    var sums_2 = mat4x4<f32>();
    var sums_3 = mat4x4<f32>();
    for (var tap_z = 0u; tap_z < tile.taps.x; tap_z++) {
        for (var tap_y = 0u; tap_y < tile.taps.y; tap_y++) {
            for (var tap_x = 0u; tap_x < tile.taps.z; tap_x++) {
                let tap = vec3<u32>(tap_z, tap_y, tap_x);
                var step = vec3<i32>(tap * params.pace.xyz);
                if (TRANSPOSED) {
                    step = -step;
                }
                let inside = is_inside(first_z, step.x, params.extents.x) & is_inside(first_y, step.y, params.extents.y)
                    & is_inside(first_x, step.z, params.extents.z);
                // What is outside reads the first pixel of each channel instead, and makes it zero.
                var places = vec4<u32>(select(vec4<i32>(), starts + place_in(params.extents, step), inside));
                let reached = vec3<i32>(tile.first_tap + tap * params.tap_step.xyz);
                var weight_places = weight_starts + u32(place_in(params.kernel, reached));
                for (var channel = 0u; channel < params.channels; channel++) {
                    let shares = load_share(weight_places);
                    let pixels = select(
                        vec4<f32>(),
                        vec4<f32>(f32(x[places.x]), f32(x[places.y]), f32(x[places.z]), f32(x[places.w])),
                        inside,
                    );
                    sums_0 = plus_outer(sums_0, weights_of(shares, 0u), pixels);
                    if (TILE_ROWS > 4u) {
                        sums_1 = plus_outer(sums_1, weights_of(shares, 4u), pixels);
                    }
                    if (TILE_ROWS > 8u) {
                        sums_2 = plus_outer(sums_2, weights_of(shares, 8u), pixels);
                        sums_3 = plus_outer(sums_3, weights_of(shares, 12u), pixels);
                    }
                    weight_places += weight_step;
                    places += params.extents.w;
                }
            }
        }
    }
    // In an array, so that a loop stores them: the text of 64 stores would take seconds to compile.
    var sums = array<vec4<f32>, 16>(
        sums_0[0], sums_0[1], sums_0[2], sums_0[3], sums_1[0], sums_1[1], sums_1[2], sums_1[3],
        sums_2[0], sums_2[1], sums_2[2], sums_2[3], sums_3[0], sums_3[1], sums_3[2], sums_3[3],
    );
    let out_places = vec4<u32>(a.place, b.place, c.place, d.place);
    for (var row = 0u; row < min(TILE_ROWS, params.rows - tile.first_row); row++) {
        store_row(tile, tile.first_row + row, sums[row], out_places);
    }
}

fn store_row(tile: Tile, row: u32, sums: vec4<f32>, places: vec4<u32>) {
    var values = sums;
    if (BIAS) {
        values += f32(bias[tile.group * params.rows + row]);
    }
    for (var j = 0u; j < 4u; j++) {
        if (places[j] != INVALID) {
            out[places[j] + row * params.outputs.w] = TOut(clamped(values[j]));
        }
    }
}
