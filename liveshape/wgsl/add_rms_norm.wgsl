// One workgroup per row: total = a + b, out = total * rsqrt(mean(total^2) + eps) * weight, as add and rms_norm would.
// T: f32, f16
override WG: u32 = 256;

struct Params {
    rows: u32,
    width: u32, // in vectors
    eps: f32,
}
@group(0) @binding(0) var<storage, read_write> total: array<V>;
@group(0) @binding(1) var<storage, read_write> out: array<V>;
@group(0) @binding(2) var<storage, read> a: array<V>;
@group(0) @binding(3) var<storage, read> b: array<V>;
@group(0) @binding(4) var<storage, read> weight: array<V>;
@group(0) @binding(5) var<uniform> params: Params;

// include row_total

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_index(group, grid);
    if (row >= params.rows) {
        return;
    }
    let start = row * params.width;
    var squares = V_math(0);
    for (var i = lane; i < params.width; i += WG) {
        let value = V(V_math(a[start + i]) + V_math(b[start + i]));
        total[start + i] = value;
        squares += V_math(value) * V_math(value);
    }
    let total_of_squares = row_total(lane, V_sum(squares));
    let scale = inverseSqrt(total_of_squares / f32(params.width * V_lanes) + params.eps);
    for (var i = lane; i < params.width; i += WG) {
        // Each lane reads back only what it wrote itself.
        out[start + i] = V(V_math(total[start + i]) * scale * V_math(weight[i]));
    }
}
