// A convolution in which every output channel sees one input channel: a thread takes four neighbours of a row of
// outputs and one channel, and reads of each row of the input once what these four have in common.
// composable: a sum is stored once.
// T: f32, f16
override WG: u32 = 64;
override BIAS: bool = false;
override WIDTH: u32 = 3; // of the kernel
override STRIDE: u32 = 1; // along a row
override DILATION: u32 = 1;

const SPAN: u32 = 3 * STRIDE + (WIDTH - 1) * DILATION + 1;
const IN_REGISTERS: bool = SPAN <= 24; // else it is cheaper to read again than to keep

#include convolution/channels

// Four sums more by one row of the kernel; `column` is where the window of the first output begins.
fn plus_row(sums: vec4<f32>, start: u32, column: i32, taps: u32) -> vec4<f32> {
    var total = sums;
    if (IN_REGISTERS) {
        var held: array<f32, SPAN>;
        for (var i = 0u; i < SPAN; i++) {
            held[i] = element(start, column + i32(i));
        }
        for (var tap = 0u; tap < WIDTH; tap++) {
            let i = tap * DILATION;
            let four = vec4<f32>(held[i], held[i + STRIDE], held[i + 2u * STRIDE], held[i + 3u * STRIDE]);
            total = fma(vec4<f32>(f32(weight[taps + tap])), four, total);
        }
    } else {
        for (var tap = 0u; tap < WIDTH; tap++) {
            let i = column + i32(tap * DILATION);
            let step = i32(STRIDE);
            let four = vec4<f32>(
                element(start, i), element(start, i + step), element(start, i + 2 * step), element(start, i + 3 * step),
            );
            total = fma(vec4<f32>(f32(weight[taps + tap])), four, total);
        }
    }
    return total;
}

fn element(start: u32, column: i32) -> f32 {
    if (u32(column) < params.extents.z) {
        return f32(x[start + u32(column)]);
    }
    return 0.0;
}

fn each(i: u32) {
    let row = i / params.fours;
    let first = i % params.fours * 4u;
    let y = row % params.outputs.y;
    let slice = row / params.outputs.y;
    var z = 0u;
    var plane = slice; // of all images
    if (params.outputs.x > 1u) {
        z = slice % params.outputs.x;
        plane = slice / params.outputs.x;
    }
    let channel = plane % params.channels;
    var source = plane;
    if (params.multiple > 1u) {
        source = plane / params.multiple;
    }
    var sums = vec4<f32>();
    for (var tap_z = 0u; tap_z < params.kernel.x; tap_z++) {
        let at_z = z * params.stride.x + tap_z * params.dilation.x - params.padding.x;
        if (at_z >= params.extents.x) {
            continue;
        }
        for (var tap_y = 0u; tap_y < params.kernel.y; tap_y++) {
            // Above the first row is, without a sign, far below the last.
            let at_y = y * params.stride.y + tap_y * params.dilation.y - params.padding.y;
            if (at_y < params.extents.y) {
                let start = source * params.extents.w + (at_z * params.extents.y + at_y) * params.extents.z;
                let taps = channel * params.kernel.w + (tap_z * params.kernel.y + tap_y) * params.kernel.z;
                sums = plus_row(sums, start, i32(first * STRIDE) - i32(params.padding.z), taps);
            }
        }
    }
    if (BIAS) {
        sums += f32(bias[channel]);
    }
    let place = row * params.outputs.z + first;
    for (var j = 0u; j < min(4u, params.outputs.z - first); j++) {
        out[place + j] = T(clamped(sums[j]));
    }
}

#include common/each
