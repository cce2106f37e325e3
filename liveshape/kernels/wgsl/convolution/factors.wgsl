// The tiles of a convolution in workgroup memory. Implicit GEMM, without im2col: each pixel of a tile is told where its
// window begins, each step of the depth where it lies in a window, and an element is where the two meet.
#include convolution/tile

var<workgroup> windows: array<vec4<i32>, TILE_COLUMNS>; // of a column: first depth, height, width, and place in x
var<workgroup> places: array<u32, TILE_COLUMNS>; // of a column in out
var<workgroup> steps: array<vec4<i32>, STEP>; // of the depth, within a window: depth, height, width, and place
var<workgroup> tap_places: array<u32, STEP>; // of the depth in the weight, where it is not the depth itself

fn begin(thread: u32, tile: Tile) {
    for (var i = thread; i < TILE_COLUMNS; i += WG) {
        let pixel = pixel_at(tile, tile.first_column + i);
        windows[i] = pixel.window;
        places[i] = pixel.place;
    }
    prefetch(thread, tile, tile.first_k);
    workgroupBarrier();
}

fn prefetch(thread: u32, tile: Tile, first_k: u32) {
    for (var i = thread; i < STEP; i += WG) {
        let k = first_k + i;
        if (k >= tile.last_k) {
            steps[i] = vec4<i32>(OUTSIDE);
            continue;
        }
        let across = k / tile.taps.z;
        let along = across / tile.taps.y;
        let channel = along / tile.taps.x;
        let tap = vec3<u32>(along % tile.taps.x, across % tile.taps.y, k % tile.taps.z);
        var step = vec3<i32>(tap * params.pace.xyz);
        if (TRANSPOSED) {
            step = -step;
            let reached = vec3<i32>(tile.first_tap + tap * params.tap_step.xyz);
            tap_places[i] = channel * params.rows * params.kernel.w + u32(place_in(params.kernel, reached));
        }
        steps[i] = vec4<i32>(step, i32(channel * params.extents.w) + place_in(params.extents, step));
    }
}

fn weight_one(i: u32) -> f32 {
    return V_at(V_math(weight[i / V_lanes]), i % V_lanes);
}

fn load_left(thread: u32, tile: Tile, first_k: u32) {
    for (var i = thread; i < TILE_ROWS * DEPTH_VEC4S; i += WG) {
        let row = tile.first_row + i / DEPTH_VEC4S;
        let k = first_k + i % DEPTH_VEC4S * 4u;
        var four = vec4<f32>();
        if (row < params.rows && k < tile.last_k) {
            if (TRANSPOSED) {
                let start = (tile.group * params.channels * params.rows + row) * params.kernel.w;
                for (var j = 0u; j < min(4u, tile.last_k - k); j++) {
                    four[j] = weight_one(start + tap_places[i % DEPTH_VEC4S * 4u + j]);
                }
            } else {
                let start = (tile.group * params.rows + row) * params.channels * params.kernel.w + k;
                if (V_lanes == 4u) {
                    let lanes = V_math(weight[start / V_lanes]);
                    four = vec4<f32>(V_at(lanes, 0u), V_at(lanes, 1u), V_at(lanes, 2u), V_at(lanes, 3u));
                } else {
                    for (var j = 0u; j < min(4u, tile.last_k - k); j++) {
                        four[j] = weight_one(start + j);
                    }
                }
            }
        }
        tile_left[(i / DEPTH_VEC4S) * PITCH + i % DEPTH_VEC4S] = four;
    }
}

fn load_right(thread: u32, tile: Tile, first_k: u32) {
    for (var i = thread; i < TILE_COLUMNS * DEPTH_VEC4S; i += WG) {
        let column = i % TILE_COLUMNS;
        let four = i / TILE_COLUMNS;
        let window = windows[column];
        tile_right[column * PITCH + four] = vec4<f32>(
            element(window + steps[four * 4u]),
            element(window + steps[four * 4u + 1u]),
            element(window + steps[four * 4u + 2u]),
            element(window + steps[four * 4u + 3u]),
        );
    }
}

fn element(at: vec4<i32>) -> f32 {
    // A negative index is a very large one.
    if (all(vec3<u32>(at.xyz) < params.extents.xyz)) {
        return f32(x[u32(at.w)]);
    }
    return 0.0;
}

fn store_sum(tile: Tile, row: u32, column: u32, sum: f32) {
    store_pixel(tile, tile.first_row + row, places[column], sum);
}
