// A convolution by matrix units as implicit GEMM of images of halves with their channels last, and of a weight as
// convolution/half_weight.wgsl writes it: see common/matrix_tiles.wgsl. Rows are the pixels of a batch, columns output
// channels, and the depth goes through the taps of the kernel, eight channels of one tap at a time.
// scratch weight, factors
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
// composable: a sum is stored once.
// TOut: f32, f16
// TBias: f32, f16
#choice STORES: fours, ones
override WG: u32 = 128;
override BIAS: bool = false;
override PIXELS: bool = false; // a window is the pixel itself

struct Params {
    batch: u32, // one: rows are of all images
    rows: u32, // pixels of all images
    columns: u32, // output channels
    eights: u32, // of input channels, the last filled with zeros
    splits: u32, // of the depth (split-K), each with partial sums of its own
#include convolution/window_params
}
#if STORES == fours
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
#endif
@group(0) @binding(1) var<storage, read> image: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> bias: array<TBias>;
@group(0) @binding(4) var<storage, read> factors: array<f32>; // of output channels
@group(0) @binding(5) var<uniform> params: Params;

#include common/matrix_tiles
#include common/matrix_grid
#include common/quotient

// A place of the depth: which one it is, where its tap lies in a window, and its vector of channels.
struct Depth {
    eight: u32,
    tap: vec2<i32>,
    channels: u32,
}

// Where the window of a pixel begins, and its image.
struct Window {
    first: vec2<i32>,
    image: u32,
}

fn depth_vectors() -> u32 {
    return params.kernel.w * params.eights;
}

fn depth_at(eight: u32) -> Depth {
    if (PIXELS) {
        return Depth(eight, vec2<i32>(), eight);
    }
    let tap = quotient(eight, params.eights);
    let along = quotient(tap, params.kernel.z);
    let place = vec2<u32>(along, tap - along * params.kernel.z);
    return Depth(eight, vec2<i32>(place * params.dilation.yz), eight - tap * params.eights);
}

fn row_start(row: u32) -> Window {
    if (PIXELS) {
        return Window(vec2<i32>(), row);
    }
    let line = row / params.outputs.z;
    let image = line / params.outputs.y;
    let pixel = vec2<u32>(line - image * params.outputs.y, row - line * params.outputs.z);
    return Window(vec2<i32>(pixel * params.stride.yz) - vec2<i32>(params.padding.yz), image);
}

fn column_start(column: u32) -> u32 {
    return column * depth_vectors();
}

fn row_vector(window: Window, depth: Depth) -> vec4<u32> {
    var pixel = window.image;
    if (!PIXELS) {
        // A negative index is a very large one.
        let at = vec2<u32>(window.first + depth.tap);
        if (any(at >= params.extents.yz)) {
            return vec4<u32>();
        }
        pixel = (window.image * params.extents.y + at.x) * params.extents.z + at.y;
    }
    if (depth.eight >= depth_vectors()) {
        return vec4<u32>();
    }
    let place = 2u * (pixel * params.eights + depth.channels);
    return vec4<u32>(bitcast<vec2<u32>>(image[place]), bitcast<vec2<u32>>(image[place + 1u]));
}

fn column_vector(start: u32, depth: Depth) -> vec4<u32> {
    if (depth.eight >= depth_vectors()) {
        return vec4<u32>();
    }
    return weight[start + depth.eight];
}

fn channel_sum(sum: f32, channel: u32) -> f32 {
    let value = sum * factors[channel];
    if (BIAS) {
        return value + f32(bias[channel]);
    }
    return value;
}

fn store_sums(row: u32, column: u32, four: vec4<f32>) {
    let place = (split * params.rows + row) * params.columns + column;
#if STORES == fours
    out[place / 4u] = vec4<TOut>(vec4<f32>(
        channel_sum(four.x, column),
        channel_sum(four.y, column + 1u),
        channel_sum(four.z, column + 2u),
        channel_sum(four.w, column + 3u),
    ));
#else
    for (var i = 0u; i < min(4u, params.columns - column); i++) {
        out[place + i] = TOut(channel_sum(four[i], column + i));
    }
#endif
}
