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
override WHOLE_STEPS: bool = false; // whether no step reaches beyond the depth

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
@group(0) @binding(1) var<storage, read> bias: array<vec4<TBias>>;
@group(0) @binding(2) var<storage, read> factors: array<vec4<f32>>; // of output channels
#else
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> bias: array<TBias>;
@group(0) @binding(2) var<storage, read> factors: array<f32>;
#endif
// words image
@group(0) @binding(3) var<storage, read> image: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> weight: array<vec4<u32>>;

#include common/matrix_tiles
#include common/matrix_grid
#include common/quotient

// A place of the depth: which one it is, where its tap lies in a window, and how far its vector of channels is from the
// first one of that window.
struct Depth {
    eight: u32,
    tap: vec2<u32>,
    distance: u32,
}

// Where the window of a pixel begins, and the vector there. Places before the first are very large ones, of which sums
// are right, as they wrap around.
struct Window {
    first: vec2<u32>,
    vector: u32,
}

fn depth_vectors() -> u32 {
    return params.kernel.w * params.eights;
}

fn vector_of(pixel: vec2<u32>) -> u32 {
    return (pixel.x * params.extents.z + pixel.y) * params.eights;
}

fn depth_at(eight: u32) -> Depth {
    if (PIXELS) {
        return Depth(eight, vec2<u32>(), eight);
    }
    let tap = quotient(eight, params.eights);
    let along = quotient(tap, params.kernel.z);
    let place = vec2<u32>(along, tap - along * params.kernel.z) * params.dilation.yz;
    return Depth(eight, place, vector_of(place) + eight - tap * params.eights);
}

fn row_start(row: u32) -> Window {
    if (PIXELS) {
        return Window(vec2<u32>(), row * params.eights);
    }
    let line = row / params.outputs.z;
    let image = line / params.outputs.y;
    let pixel = vec2<u32>(line - image * params.outputs.y, row - line * params.outputs.z);
    let first = pixel * params.stride.yz - params.padding.yz;
    return Window(first, image * params.extents.w * params.eights + vector_of(first));
}

fn column_start(column: u32) -> u32 {
    return column * depth_vectors();
}

fn row_vector(window: Window, depth: Depth) -> vec4<u32> {
    if (!PIXELS && any(window.first + depth.tap >= params.extents.yz)) {
        return vec4<u32>();
    }
    if (!WHOLE_STEPS && depth.eight >= depth_vectors()) {
        return vec4<u32>();
    }
    return image[window.vector + depth.distance];
}

fn column_vector(start: u32, depth: Depth) -> vec4<u32> {
    if (!WHOLE_STEPS && depth.eight >= depth_vectors()) {
        return vec4<u32>();
    }
    return weight[start + depth.eight];
}

fn place_of(row: u32, column: u32) -> u32 {
    return (split * params.rows + row) * params.columns + column;
}

#if STORES == fours
#include common/ahead

alias Early = Ahead;

struct Columns {
    factors: vec4<f32>, // what channels were divided by
    addend: vec4<f32>,
}

fn columns_of(column: u32) -> Columns {
    var addend = vec4<f32>();
    if (BIAS) {
        addend = vec4<f32>(bias[column / 4u]);
    }
    return Columns(factors[column / 4u], addend);
}

fn early(row: u32, column: u32) -> Early {
    return ahead_of(place_of(row, column) / 4u);
}

// The sums of four neighbours, given back what their channels were divided by.
fn store_sums(row: u32, column: u32, four: vec4<f32>, given: Early, columns: Columns) {
    at_hand = given;
    out[place_of(row, column) / 4u] = vec4<TOut>(four * columns.factors + columns.addend);
}
#else
#include common/nothing_early

fn store_sums(row: u32, column: u32, four: vec4<f32>, given: Early, columns: Columns) {
    for (var i = 0u; i < min(4u, params.columns - column); i++) {
        var sum = four[i] * factors[column + i];
        if (BIAS) {
            sum += f32(bias[column + i]);
        }
        out[place_of(row, column) + i] = TOut(sum);
    }
}
#endif
