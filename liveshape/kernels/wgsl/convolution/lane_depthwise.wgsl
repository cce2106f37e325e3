// A convolution in which every output channel sees one input channel, for a device with few threads, whose loads are
// expensive and whose shuffles are not: a workgroup is one subgroup in one channel. A lane has a block of four by four
// neighbours, and reads each row of the input once for all of them. It loads a few of the taps, which all lanes get by
// shuffles.
// composable: a sum is stored once.
// T: f32, f16
override WG: u32 = 8; // the size of a subgroup
override BIAS: bool = false;
override WIDTH: u32 = 3; // of the kernel
override STRIDE: u32 = 1; // along a row
override DILATION: u32 = 1;
override ROW_STRIDE: u32 = 1; // from row to row
override ROW_DILATION: u32 = 1;

const HEIGHT: u32 = 4; // of a block
const SPAN: u32 = 3 * STRIDE + (WIDTH - 1) * DILATION + 1;

#include convolution/channels

var<private> shares: vec4<f32>; // taps lane, lane + WG, lane + 2 WG and lane + 3 WG

fn load_shares(lane: u32, channel: u32) {
    for (var i = 0u; i < 4u; i++) {
        shares[i] = f32(weight[channel * params.kernel.w + min(lane + i * WG, params.kernel.w - 1u)]);
    }
}

fn tap_at(tap: u32) -> f32 {
    return subgroupShuffle(shares[tap / WG], tap % WG);
}

fn element(start: u32, column: i32, row_inside: bool) -> f32 {
    let inside = row_inside && u32(column) < params.extents.z;
    return select(0.0, f32(x[select(0u, start + u32(column), inside)]), inside);
}

// Four sums more by a row of the input, so far below the first one that they read.
fn plus_row(sums: vec4<f32>, row: array<f32, SPAN>, below: u32, tap_z: u32) -> vec4<f32> {
    var held = row;
    var total = sums;
    // Above is, without a sign, far below.
    let tap_y = below / ROW_DILATION;
    if (tap_y < params.kernel.y && below % ROW_DILATION == 0u) {
        let first = (tap_z * params.kernel.y + tap_y) * WIDTH;
        for (var tap = 0u; tap < WIDTH; tap++) {
            let i = tap * DILATION;
            let four = vec4<f32>(held[i], held[i + STRIDE], held[i + 2u * STRIDE], held[i + 3u * STRIDE]);
            total = fma(vec4<f32>(tap_at(first + tap)), four, total);
        }
    }
    return total;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let bands = (params.outputs.y + HEIGHT - 1u) / HEIGHT;
    let blocks = params.fours * bands * params.outputs.x; // of a plane
    let plane_groups = (blocks + WG - 1u) / WG;
    let index = group_index(group, grid);
    let plane = index / plane_groups; // of all images
    if (plane >= params.count) {
        return;
    }
    let channel = plane % params.channels;
    load_shares(lane, channel);
    let block = index % plane_groups * WG + lane; // one behind the last is computed, too, for the taps of its lane
    let band = block / params.fours;
    let z = band / bands;
    let y = band % bands * HEIGHT;
    let first = block % params.fours * 4u;
    let column = i32(first * STRIDE) - i32(params.padding.z);
    let source = plane / params.multiple * params.extents.w;
    var sums_0 = vec4<f32>();
    var sums_1 = vec4<f32>();
    var sums_2 = vec4<f32>();
    var sums_3 = vec4<f32>();
    for (var tap_z = 0u; tap_z < params.kernel.x; tap_z++) {
        let at_z = z * params.stride.x + tap_z * params.dilation.x - params.padding.x;
        for (var row = 0u; row <= (HEIGHT - 1u) * ROW_STRIDE + (params.kernel.y - 1u) * ROW_DILATION; row++) {
            let at_y = y * ROW_STRIDE + row - params.padding.y;
            let inside = at_z < params.extents.x && at_y < params.extents.y;
            let start = source + (at_z * params.extents.y + at_y) * params.extents.z;
            var held: array<f32, SPAN>;
            for (var i = 0u; i < SPAN; i++) {
                held[i] = element(start, column + i32(i), inside);
            }
            sums_0 = plus_row(sums_0, held, row, tap_z);
            sums_1 = plus_row(sums_1, held, row - ROW_STRIDE, tap_z);
            sums_2 = plus_row(sums_2, held, row - 2u * ROW_STRIDE, tap_z);
            sums_3 = plus_row(sums_3, held, row - 3u * ROW_STRIDE, tap_z);
        }
    }
    var sums = array<vec4<f32>, HEIGHT>(sums_0, sums_1, sums_2, sums_3);
    var added = 0.0;
    if (BIAS) {
        added = f32(bias[channel]);
    }
    if (block >= blocks) {
        return;
    }
    for (var row = 0u; row < min(HEIGHT, params.outputs.y - y); row++) {
        let place = plane * params.outputs.w + (z * params.outputs.y + y + row) * params.outputs.z + first;
        for (var j = 0u; j < min(4u, params.outputs.z - first); j++) {
            out[place + j] = T(clamped(sums[row][j] + added));
        }
    }
}
