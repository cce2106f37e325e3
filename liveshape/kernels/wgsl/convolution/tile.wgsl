// A tile of a convolution: rows are output channels of a group, columns are pixels of the whole batch, and the depth
// goes through the input channels of the group and the taps of the kernel.
//
// A transposed convolution is one for each phase of its stride: outputs `stride` apart are reached by the same taps,
// and these walk the input one by one, backwards.
// TOut: f32, f16
override TRANSPOSED: bool = false;
override BIAS: bool = false;

struct Params {
    batch: u32,
    divisions: u32, // groups of channels
    rows: u32, // output channels of a group
    channels: u32, // input channels of a group
    columns: u32, // pixels of the batch, of the largest phase
    splits: u32, // of the depth (split-K), each with partial sums of its own
    split_depth: u32,
    split_stride: u32, // elements between the sums of one and of the next
#include convolution/window_params
    tap_step: vec4<u32>, // from one tap that reaches an output to the next
    pace: vec4<u32>, // how far that goes in the input
    low: f32,
    high: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<storage, read> weight: array<V>;
@group(0) @binding(3) var<storage, read> bias: array<T>;

#include common/clamped

const OUTSIDE: i32 = 0x20000000; // twice this is still more than any size
const INVALID: u32 = 0xffffffff;

struct Tile {
    exists: bool,
    group: u32,
    split: u32,
    first_row: u32,
    first_column: u32,
    first_k: u32,
    last_k: u32,
    columns: u32,
    pixels: vec3<u32>, // of an image, in this phase
    phase: vec3<u32>, // the first of them
    first_tap: vec3<u32>,
    taps: vec3<u32>, // how many taps reach them
    origin: vec3<i32>, // where the first tap of the first of them lies in the input
}

fn tile_at(index: u32) -> Tile {
    // Tiles of one band of pixels are neighbours, so that these stay in the cache.
    let row_tiles = (params.rows + TILE_ROWS - 1u) / TILE_ROWS;
    let column_tiles = (params.columns + TILE_COLUMNS - 1u) / TILE_COLUMNS;
    var tile: Tile;
    var rest = index / row_tiles;
    tile.first_row = (index % row_tiles) * TILE_ROWS;
    tile.first_column = (rest % column_tiles) * TILE_COLUMNS;
    rest = rest / column_tiles;
    tile.split = rest % params.splits;
    rest = rest / params.splits;
    tile.group = rest % params.divisions;
    rest = rest / params.divisions;
    if (TRANSPOSED) {
        tile.exists = rest < params.stride.x * params.stride.y * params.stride.z;
        tile.phase.z = rest % params.stride.z;
        rest = rest / params.stride.z;
        tile.phase.y = rest % params.stride.y;
        tile.phase.x = rest / params.stride.y;
        for (var axis = 0u; axis < 3u; axis++) {
            reach(&tile, axis);
        }
    } else {
        tile.exists = rest == 0u;
        tile.pixels = params.outputs.xyz;
        tile.taps = params.kernel.xyz;
        tile.origin = -vec3<i32>(params.padding.xyz);
    }
    tile.columns = params.batch * tile.pixels.x * tile.pixels.y * tile.pixels.z;
    tile.exists = tile.exists && tile.first_column < tile.columns;
    tile.first_k = tile.split * params.split_depth;
    tile.last_k = min(tile.first_k + params.split_depth, params.channels * tile.taps.x * tile.taps.y * tile.taps.z);
    return tile;
}

// Which outputs are of the phase along an axis, and which taps reach them.
fn reach(tile: ptr<function, Tile>, axis: u32) {
    let stride = params.stride[axis];
    let phase = (*tile).phase[axis];
    (*tile).pixels[axis] = (max(params.outputs[axis], phase) - phase + stride - 1u) / stride;
    let last = phase + params.padding[axis];
    var tap = 0u;
    while (tap < params.tap_step[axis] && (last + tap * params.dilation[axis] * (stride - 1u)) % stride != 0u) {
        tap++;
    }
    if (tap < params.tap_step[axis]) {
        let step = params.tap_step[axis];
        (*tile).first_tap[axis] = tap;
        (*tile).taps[axis] = (max(params.kernel[axis], tap) - tap + step - 1u) / step;
        (*tile).origin[axis] = (i32(last) - i32(tap * params.dilation[axis])) / i32(stride);
    }
}

fn place_in(extents: vec4<u32>, index: vec3<i32>) -> i32 {
    return (index.x * i32(extents.y) + index.y) * i32(extents.z) + index.z;
}

// Where the window of a column begins: depth, height, width, and place in x; and the place of its result in out.
struct Pixel {
    window: vec4<i32>,
    place: u32,
}

fn pixel_at(tile: Tile, column: u32) -> Pixel {
    let across = column / tile.pixels.z;
    let along = across / tile.pixels.y;
    let image = along / tile.pixels.x;
    let pixel = vec3<u32>(along % tile.pixels.x, across % tile.pixels.y, column % tile.pixels.z);
    let plane = image * params.divisions + tile.group;
    var first = vec3<i32>(pixel) + tile.origin;
    var result = pixel;
    if (TRANSPOSED) {
        result = pixel * params.stride.xyz + tile.phase;
    } else {
        first = vec3<i32>(pixel * params.stride.xyz) + tile.origin;
    }
    let exists = column < tile.columns;
    let start = i32(plane * params.channels * params.extents.w) + place_in(params.extents, first);
    let place = plane * params.rows * params.outputs.w + u32(place_in(params.outputs, vec3<i32>(result)));
    return Pixel(select(vec4<i32>(OUTSIDE), vec4<i32>(first, start), exists), select(INVALID, place, exists));
}

// The sum of a channel of a tile at a place of its pixel, behind bias and clamp.
fn store_pixel(tile: Tile, channel: u32, place: u32, sum: f32) {
    if (channel >= params.rows || place == INVALID) {
        return;
    }
    var value = sum;
    if (BIAS) {
        value += f32(bias[tile.group * params.rows + channel]);
    }
    out[tile.split * params.split_stride + place + channel * params.outputs.w] = TOut(clamped(value));
}
