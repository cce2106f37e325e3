// Rows as halves for matrix units, each divided by a power of two that keeps its largest number in their range. A
// workgroup takes a row; the depth is a multiple of 8.
// unchecked: rows and depth are those of the tensors, which planning checked.
// T: f32, f16
override WG: u32 = 256;

struct Params {
    rows: u32,
    depth: u32,
    first_factor: u32,
}
@group(0) @binding(0) var<storage, read_write> halves: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> factors: array<f32>; // of columns, and behind them of rows
@group(0) @binding(2) var<storage, read> x: array<vec4<T>>;
@group(0) @binding(3) var<uniform> params: Params;

var<workgroup> largest_of: array<f32, WG>;

#include quantization/half_exponent

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let eights = params.depth / 8u;
    for (var row = group_index(group, grid); row < params.rows; row += grid.x * grid.y * grid.z) {
        var most = vec4<f32>();
        for (var i = thread; i < eights; i += WG) {
            let at = (row * eights + i) * 2u;
            most = max(most, max(abs(vec4<f32>(x[at])), abs(vec4<f32>(x[at + 1u]))));
        }
        largest_of[thread] = max(max(most.x, most.y), max(most.z, most.w));
        for (var half = WG / 2u; half > 0u; half /= 2u) {
            workgroupBarrier();
            if (thread < half) {
                largest_of[thread] = max(largest_of[thread], largest_of[thread + half]);
            }
        }
        workgroupBarrier();
        let scale = half_scale(largest_of[0]);
        if (thread == 0u) {
            factors[params.first_factor + row] = scale.factor;
        }
        for (var i = thread; i < eights; i += WG) {
            let at = (row * eights + i) * 2u;
            halves[row * eights + i] = eight_halves(
                vec4<f32>(x[at]) * scale.inverse, vec4<f32>(x[at + 1u]) * scale.inverse,
            );
        }
        workgroupBarrier();
    }
}
