// statistics[row, part] = the mean of a part of a row, and the sum of the squares of what its elements are above that: a
// workgroup per part, which lies in its registers. For long rows of which there are too few to fill a device.
// composable x: its part lies in registers.
// T: f32, f16
override WG: u32 = 256;
override SUBGROUP: u32 = 0;
override REGISTER_VECTORS: u32 = 4; // of a thread

struct Params {
    count: u32, // of parts
    width: u32, // of a row, in vectors
    parts: u32, // of a row
}
@group(0) @binding(0) var<storage, read_write> statistics: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> x: array<V>;
@group(0) @binding(2) var<uniform> params: Params;

#include reduction/across_workgroup

var<private> registers: array<V_math, REGISTER_VECTORS>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, grid);
    if (i >= params.count) {
        return;
    }
    let span = WG * REGISTER_VECTORS;
    let begin = i % params.parts * span;
    let vectors = min(span, params.width - begin);
    let start = i / params.parts * params.width + begin;
    var sums = V_math(0);
    for (var h = 0u; h < REGISTER_VECTORS; h++) {
        if (thread + h * WG < vectors) {
            registers[h] = V_math(x[start + thread + h * WG]);
            sums += registers[h];
        }
    }
    let mean = workgroup_sum(thread, V_sum(sums)) / f32(vectors * V_lanes);
    var squares = V_math(0);
    for (var h = 0u; h < REGISTER_VECTORS; h++) {
        if (thread + h * WG < vectors) {
            let difference = registers[h] - mean;
            squares += difference * difference;
        }
    }
    workgroupBarrier();
    let total = workgroup_sum(thread, V_sum(squares));
    if (thread == 0u) {
        statistics[i] = vec2<f32>(mean, total);
    }
}
