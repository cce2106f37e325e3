// A convolution of integers of eight bits in two dimensions, TRANSPOSED or not: a thread takes four neighbours of the
// output, of one channel or of four. What lies outside of x is its zero point. The taps say how a place of the kernel
// counts.
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 64;
override CHANNELS: u32 = 1; // 1, or 4 where four neighbours always are pixels of one channel
override TRANSPOSED: bool = false;

struct Params {
    count: u32, // units of four pixels
    elements: u32, // of the output
    channels: u32,
    out_channels: u32,
    group_channels: u32, // of x
    group_out_channels: u32,
    scale_period: u32, // how many scales there are before they repeat
    pitch: u32, // bytes of a row of the weight
#include int8/window_params
}
#include int8/store_four
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> weight: array<u32>;
@group(0) @binding(3) var<storage, read> sums: array<i32>; // of each output channel of the weight
@group(0) @binding(4) var<storage, read> scales: array<TScale>;
@group(0) @binding(5) var<storage, read> bias: array<TBias>;

#include common/bytes
#include int8/rescale

var<private> image: vec4<u32>;
var<private> channel: vec4<u32>; // the first of CHANNELS
var<private> totals: array<vec4<i32>, CHANNELS>;

#include int8/taps

// Along an axis, where output pixels meet x at a place of the kernel; -1 where that is outside.
fn met_along(axis: u32, pixels: vec4<i32>, tap: u32) -> vec4<i32> {
    let stride = i32(params.stride[axis]);
    let ahead = i32(tap * params.dilation[axis]) - i32(params.padding[axis]);
    var met = pixels * stride + ahead;
    var inside = vec4<bool>(true);
    if (TRANSPOSED) {
        // Not by a remainder: GPUs do not agree on those of negative numbers.
        let reached = pixels - ahead;
        met = reached / stride;
        inside = met * stride == reached;
    }
    inside &= (met >= vec4<i32>()) & (met < vec4<i32>(i32(params.size[axis])));
    return select(vec4<i32>(-1), met, inside);
}

fn each(unit: u32) {
    let pixels = params.out_size.x * params.out_size.y;
    var first = unit * 4u;
    if (CHANNELS > 1u) {
        let fours = pixels / 4u;
        let blocks = (params.out_channels + CHANNELS - 1u) / CHANNELS;
        let block = unit / fours;
        first = (block / blocks * params.out_channels + block % blocks * CHANNELS) * pixels + unit % fours * 4u;
    }
    let places = min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.elements - 1u));
    let pixel = places % pixels;
    image = places / pixels / params.out_channels;
    channel = places / pixels % params.out_channels;
    let rows = vec4<i32>(pixel / params.out_size.y);
    let columns = vec4<i32>(pixel % params.out_size.y);
    for (var down = 0u; down < params.kernel.x; down++) {
        let row = met_along(0u, rows, down);
        for (var across = 0u; across < params.kernel.y; across++) {
            let column = met_along(1u, columns, across);
            let met = row * i32(params.size.y) + column;
            add_tap(down * params.kernel.y + across, select(met, vec4<i32>(-1), min(row, column) < vec4<i32>()));
        }
    }
    for (var c = 0u; c < CHANNELS; c++) {
        if (channel.x + c < params.out_channels) {
            var values = vec4<f32>();
            for (var k = 0u; k < 4u; k++) {
                let at = channel[k] + c;
                values[k] = rescaled(total_of(totals[c][k], at), at, f32(scales[at % params.scale_period]));
            }
            store_four(first + c * pixels, params.elements, values);
        }
    }
}

#include common/each
