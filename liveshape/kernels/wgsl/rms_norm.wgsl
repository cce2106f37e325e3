// One workgroup per row: out = row * rsqrt(mean(row^2) + eps) * weight, summed in f32.
// T: f32, f16
override WG: u32 = 256;

struct Params {
    rows: u32,
    width: u32, // in vectors
    eps: f32,
}
// include rms_put
@group(0) @binding(1) var<storage, read> weight: array<V>;

// include rms_row
// include row_total, by lanes row_total_lanes

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
        let value = first_look(start + i);
        squares += value * value;
    }
    let total_of_squares = row_total(lane, V_sum(squares));
    let scale = inverseSqrt(total_of_squares / f32(params.width * V_lanes) + params.eps);
    put_row(lane, start, scale);
}
