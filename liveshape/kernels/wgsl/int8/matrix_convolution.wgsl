// A convolution of integers of eight bits by matrix units as implicit GEMM: see common/matrix_tiles.wgsl. Rows are output
// channels, columns the pixels of all images, and the depth goes through the taps of the kernel, 16 channels of one tap
// at a time: x is [N, H, W, C], the weight [out channels, kernel, C]. What lies outside of x is its zero point. Sums are
// exact, and the epilogue is that of int8/convolution.wgsl.
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
// scratch x
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 128;

struct Params {
    batch: u32, // one: columns are of all images
    rows: u32, // output channels
    columns: u32, // pixels of all images, of each a multiple of 4
    channels: u32, // of x, a multiple of 16
    splits: u32, // one
    pitch: u32, // bytes of a row of the weight, a multiple of 16
    scale_period: u32, // how many scales there are before they repeat
#include int8/window_params
}
#include int8/store_four
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> weight_sums: array<i32>; // of each output channel
@group(0) @binding(4) var<storage, read> scales: array<TScale>;
@group(0) @binding(5) var<storage, read> bias: array<TBias>;

#include common/bytes
#include int8/rescale
#include common/matrix_tiles
#include common/nothing_early
#include common/matrix_grid

// A place of the depth: which vector it is, where its tap lies in a window, and its vector of channels.
struct Depth {
    vector: u32,
    tap: vec2<i32>,
    channels: u32,
}

// Where the window of a pixel begins, and its image.
struct Window {
    first: vec2<i32>,
    image: u32,
}

fn tap_vectors() -> u32 {
    return params.channels / 16u;
}

fn depth_vectors() -> u32 {
    return params.kernel.x * params.kernel.y * tap_vectors();
}

fn depth_at(vector: u32) -> Depth {
    let tap = vector / tap_vectors();
    let place = vec2<u32>(tap / params.kernel.y, tap % params.kernel.y);
    return Depth(vector, vec2<i32>(place * params.dilation), vector % tap_vectors());
}

fn row_start(row: u32) -> u32 {
    return row * (params.pitch / 16u);
}

fn column_start(column: u32) -> Window {
    let down = column / params.out_size.y;
    let pixel = vec2<u32>(down % params.out_size.x, column % params.out_size.y);
    return Window(vec2<i32>(pixel * params.stride) - vec2<i32>(params.padding), down / params.out_size.x);
}

fn row_vector(start: u32, depth: Depth) -> vec4<u32> {
    if (depth.vector >= depth_vectors()) {
        return vec4<u32>();
    }
    return weight[start + depth.vector];
}

// Beyond the depth it is whatever it is: the weight is zero there.
fn column_vector(window: Window, depth: Depth) -> vec4<u32> {
    // A negative index is a very large one.
    let at = vec2<u32>(window.first + depth.tap);
    if (depth.vector >= depth_vectors() || any(at >= params.size)) {
        return vec4<u32>((bitcast<u32>(params.x_zero) & 0xffu) * 0x01010101u);
    }
    return x[((window.image * params.size.x + at.x) * params.size.y + at.y) * tap_vectors() + depth.channels];
}

fn store_sums(row: u32, column: u32, four: vec4<i32>, given: Early, columns: Columns) {
    let pixels = params.out_size.x * params.out_size.y;
    let scale = f32(scales[row % params.scale_period]);
    var values = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        values[i] = rescaled(four[i] - params.x_zero * weight_sums[row], row, scale);
    }
    let plane = column / pixels * params.rows + row;
    store_four(plane * pixels + column % pixels, params.rows * params.columns, values);
}
