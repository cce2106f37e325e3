// The weight of a convolution as halves for matrix units: of each output channel the taps, and of a tap the input
// channels, in vectors of eight whose last is filled with zeros. What an output channel was divided by, a power of two,
// keeps its largest number in the range of halves; numbers that are halves stay as they are (not SCALED).
// scratch halves, factors
// unchecked: channels and taps are those of the tensor, which planning checked.
// T: f32, f16
override WG: u32 = 256;
override SCALED: bool = true;

struct Params {
    rows: u32, // output channels
    channels: u32, // input channels
    taps: u32,
    row_stride: u32, // of the weight; its taps are neighbours
    channel_stride: u32,
}
@group(0) @binding(0) var<storage, read_write> halves: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> factors: array<f32>; // of output channels
@group(0) @binding(2) var<storage, read> weight: array<T>;

#include quantization/half_exponent
#include quantization/largest

// Four input channels of a tap.
fn four_channels(start: u32, tap: u32, channel: u32) -> vec4<f32> {
    var four = vec4<f32>();
    for (var i = 0u; i < min(4u, max(params.channels, channel) - channel); i++) {
        four[i] = f32(weight[start + (channel + i) * params.channel_stride + tap]);
    }
    return four;
}

fn half_row(thread: u32, row: u32) {
    let start = row * params.row_stride;
    var scale = HalfScale(1.0, 1.0);
    if (SCALED) {
        var most = 0.0;
        // A row is contiguous, or it has one tap.
        let stride = select(params.channel_stride, 1u, params.channel_stride == params.taps);
        for (var k = thread; k < params.channels * params.taps; k += WG) {
            most = max(most, abs(f32(weight[start + k * stride])));
        }
        scale = half_scale(largest_of_four(largest(thread, thread, WG, 1u, vec4<f32>(most))));
    }
    if (thread == 0u) {
        factors[row] = scale.factor;
    }
    let per_tap = (params.channels + 7u) / 8u;
    // Neighbouring threads have neighbouring taps, which lie beside each other in the weight.
    for (var i = thread; i < per_tap * params.taps; i += WG) {
        let eight = i / params.taps;
        let tap = i % params.taps;
        halves[(row * params.taps + tap) * per_tap + eight] = eight_halves(
            four_channels(start, tap, eight * 8u) * scale.inverse,
            four_channels(start, tap, eight * 8u + 4u) * scale.inverse,
        );
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = group_index(group, grid);
    if (row < params.rows) {
        half_row(thread, row);
    }
}
