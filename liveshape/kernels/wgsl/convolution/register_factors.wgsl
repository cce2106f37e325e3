// The factors of a convolution for tiles in registers, as implicit GEMM: weights on the left, pixels on the right.
#include common/quotient
#include convolution/tile

// Where the windows of four pixels begin.
struct Columns {
    z: vec4<i32>,
    y: vec4<i32>,
    x: vec4<i32>,
    start: vec4<i32>,
}

fn columns_at(tile: Tile, column: u32) -> Columns {
    let a = pixel_at(tile, column).window;
    let b = pixel_at(tile, column + 1u).window;
    let c = pixel_at(tile, column + 2u).window;
    let d = pixel_at(tile, column + 3u).window;
    return Columns(
        vec4<i32>(a.x, b.x, c.x, d.x), vec4<i32>(a.y, b.y, c.y, d.y), vec4<i32>(a.z, b.z, c.z, d.z),
        vec4<i32>(a.w, b.w, c.w, d.w),
    );
}

fn left_starts(tile: Tile, row: u32) -> vec4<u32> {
    let rows = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.rows - 1u));
    return (tile.group * params.rows + rows) * params.channels * params.kernel.w;
}

fn left_block(tile: Tile, starts: vec4<u32>, k: u32) -> mat4x4<f32> {
    let left = max(tile.last_k, k) - k;
    return mat4x4<f32>(
        left_four(starts.x + k, left), left_four(starts.y + k, left), left_four(starts.z + k, left),
        left_four(starts.w + k, left),
    );
}

fn left_four(place: u32, count: u32) -> vec4<f32> {
    var four = vec4<f32>();
    if (V_lanes == 4u) {
        if (count > 0u) {
            let lanes = V_math(weight[place / V_lanes]);
            four = vec4<f32>(V_at(lanes, 0u), V_at(lanes, 1u), V_at(lanes, 2u), V_at(lanes, 3u));
        }
    } else {
        for (var j = 0u; j < min(4u, count); j++) {
            four[j] = V_at(V_math(weight[place + j]), 0u);
        }
    }
    return four;
}

fn is_inside(first: vec4<i32>, step: i32, size: u32) -> vec4<bool> {
    // A negative index is a very large one.
    return vec4<u32>(first + step) < vec4<u32>(size);
}

fn right_four(tile: Tile, columns: Columns, k: u32) -> vec4<f32> {
    let channel = quotient(k, params.kernel.w);
    let across = quotient(k, params.kernel.z);
    let along = quotient(across, params.kernel.y);
    let tap = vec3<u32>(along - channel * params.kernel.x, across - along * params.kernel.y, k - across * params.kernel.z);
    let step = vec3<i32>(tap * params.dilation.xyz);
    let inside = is_inside(columns.z, step.x, params.extents.x) & is_inside(columns.y, step.y, params.extents.y)
        & is_inside(columns.x, step.z, params.extents.z) & vec4<bool>(k < tile.last_k);
    // What is outside reads the first pixel instead, and makes it zero.
    let offset = i32(channel * params.extents.w) + place_in(params.extents, step);
    let places = vec4<u32>(select(vec4<i32>(), columns.start + offset, inside));
    return select(vec4<f32>(), vec4<f32>(f32(x[places.x]), f32(x[places.y]), f32(x[places.z]), f32(x[places.w])), inside);
}

// The place of a pixel in out.
fn target_at(tile: Tile, column: u32) -> u32 {
    return pixel_at(tile, column).place;
}

fn store_sum(tile: Tile, channel: u32, place: u32, sum: f32) {
    store_pixel(tile, channel, place, sum);
}
