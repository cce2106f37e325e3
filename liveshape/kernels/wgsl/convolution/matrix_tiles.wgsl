// A convolution by matrix units as implicit GEMM, from halves as convolution/half_weight.wgsl and half_image.wgsl write
// them: see common/matrix_tiles.wgsl. Rows are output channels, columns the pixels of the batch, and the depth goes
// through the taps of the kernel, eight input channels of one tap at a time, so that a vector of the image is where a
// window and a tap meet. Of a transposed convolution whose windows do not overlap (SPREAD) a row is one tap of an output
// channel, and a column, a pixel of the input, becomes a block of the output.
// scratch image, weight, factors, image_factor
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
// composable: a sum is stored once.
// TOut: f32, f16
// T: f32, f16
override WG: u32 = 128;
override BIAS: bool = false;
override SPREAD: bool = false;

struct Params {
    batch: u32, // one: columns are of all images
    rows: u32, // output channels, times their taps where it is SPREAD
    columns: u32, // pixels of all images
    channels: u32, // input channels
    splits: u32, // of the depth (split-K), each with partial sums of its own
    split_stride: u32, // elements between the sums of one and of the next
#include convolution/window_params
    block: vec4<u32>, // of the output, that a column is SPREAD to: depth, height, width, and all of them
    low: f32,
    high: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> image: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> bias: array<T>;
@group(0) @binding(4) var<storage, read> factors: array<f32>; // of output channels
@group(0) @binding(5) var<storage, read> image_factor: array<f32>;

#include common/clamped
#include common/half_factors
#include common/matrix_tiles
#include common/nothing_early
#include common/matrix_grid
#include common/quotient

// A place of the depth: which one it is, where its tap lies in a window, and its vector of channels.
struct Depth {
    eight: u32,
    tap: vec3<i32>,
    channels: u32,
}

// Where the window of a pixel begins, and its image.
struct Window {
    first: vec3<i32>,
    image: u32,
}

fn tap_eights() -> u32 {
    return (params.channels + 7u) / 8u;
}

fn depth_vectors() -> u32 {
    return params.kernel.w * tap_eights();
}

fn depth_at(eight: u32) -> Depth {
    let tap = quotient(eight, tap_eights());
    let across = quotient(tap, params.kernel.z);
    let along = quotient(across, params.kernel.y);
    let place = vec3<u32>(along, across - along * params.kernel.y, tap - across * params.kernel.z);
    return Depth(eight, vec3<i32>(place * params.dilation.xyz), eight - tap * tap_eights());
}

fn row_start(row: u32) -> u32 {
    return row * depth_vectors();
}

fn column_start(column: u32) -> Window {
    let across = column / params.outputs.z;
    let along = across / params.outputs.y;
    let pixel = vec3<u32>(along % params.outputs.x, across % params.outputs.y, column % params.outputs.z);
    return Window(vec3<i32>(pixel * params.stride.xyz) - vec3<i32>(params.padding.xyz), along / params.outputs.x);
}

fn row_vector(start: u32, depth: Depth) -> vec4<u32> {
    if (depth.eight >= depth_vectors()) {
        return vec4<u32>();
    }
    return weight[start + depth.eight];
}

fn column_vector(window: Window, depth: Depth) -> vec4<u32> {
    // A negative index is a very large one.
    let at = vec3<u32>(window.first + depth.tap);
    if (depth.eight >= depth_vectors() || any(at >= params.extents.xyz)) {
        return vec4<u32>();
    }
    let pixel = ((window.image * params.extents.x + at.x) * params.extents.y + at.y) * params.extents.z + at.z;
    return image[pixel * tap_eights() + depth.channels];
}

// Where a pixel of a row lies in its plane of the output.
fn place_in_plane(row: u32, pixel: u32) -> u32 {
    if (!SPREAD) {
        return pixel;
    }
    let tap = row % params.block.w;
    let across = tap / params.block.z;
    let in_block = vec3<u32>(across / params.block.y, across % params.block.y, tap % params.block.z);
    let line = pixel / params.outputs.z;
    let block = vec3<u32>(line / params.outputs.y, line % params.outputs.y, pixel % params.outputs.z);
    let at = block * params.block.xyz + in_block;
    return (at.x * params.outputs.y * params.block.y + at.y) * params.outputs.z * params.block.z + at.z;
}

fn store_sums(row: u32, column: u32, four: vec4<f32>, given: Early, columns: Columns) {
    let taps = select(1u, params.block.w, SPREAD);
    let channel = row / taps;
    var addend = 0.0;
    if (BIAS) {
        addend = f32(bias[channel]);
    }
    var image = column / params.outputs.w;
    var pixel = column - image * params.outputs.w;
    for (var i = 0u; i < min(4u, params.columns - column); i++) {
        let value = given_back(four[i], factors[row], image_factor[0]) + addend;
        let plane = image * (params.rows / taps) + channel;
        let place = place_in_plane(row, pixel);
        out[split * params.split_stride + plane * params.outputs.w * taps + place] = TOut(clamped(value));
        pixel++;
        if (pixel == params.outputs.w) {
            pixel = 0u;
            image++;
        }
    }
}
