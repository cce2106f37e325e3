// Rows as halves for matrix units, each divided by a power of two that keeps its largest number in their range. A
// workgroup takes four rows; the depth is a multiple of 8.
// unchecked: rows and depth are those of the tensors, which planning checked; blocks have room for whole fours.
// T: f32, f16
override WG: u32 = 256;

const ROWS: u32 = 4;
const THREADS: u32 = WG / ROWS; // of a row

struct Params {
    rows: u32,
    depth: u32,
}
@group(0) @binding(0) var<storage, read_write> halves: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<T>>;
@group(0) @binding(2) var<uniform> params: Params;

var<workgroup> largest_of: array<f32, WG>;

#include quantization/half_exponent
#include quantization/half_blocks

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let eights = params.depth / 8u;
    for (var first = group_index(group, grid) * ROWS; first < params.rows; first += grid.x * grid.y * grid.z * ROWS) {
        let row = first + thread % ROWS;
        let begin = min(row, params.rows - 1u) * eights;
        var most = vec4<f32>();
        for (var i = thread / ROWS; i < eights; i += THREADS) {
            let at = (begin + i) * 2u;
            most = max(most, max(abs(vec4<f32>(x[at])), abs(vec4<f32>(x[at + 1u]))));
        }
        largest_of[thread] = max(max(most.x, most.y), max(most.z, most.w));
        for (var half = WG / 2u; half >= ROWS; half /= 2u) {
            workgroupBarrier();
            if (thread < half) {
                largest_of[thread] = max(largest_of[thread], largest_of[thread + half]);
            }
        }
        workgroupBarrier();
        let scale = half_scale(largest_of[thread % ROWS]);
        if (thread == 0u) {
            halves[first_factor(params.rows, eights) + first / ROWS] = bitcast<vec4<u32>>(vec4<f32>(
                scale.factor,
                half_scale(largest_of[1]).factor, half_scale(largest_of[2]).factor, half_scale(largest_of[3]).factor,
            ));
        }
        for (var i = thread / ROWS; i < eights; i += THREADS) {
            let at = (begin + i) * 2u;
            halves[half_place(row, i, eights)] = eight_halves(
                vec4<f32>(x[at]) * scale.inverse, vec4<f32>(x[at + 1u]) * scale.inverse,
            );
        }
        workgroupBarrier();
    }
}
