// One workgroup per row: out = row * rsqrt(mean(row^2) + eps) * weight, summed in f32.
// T: f32, f16
override WG: u32 = 256;
override HELD: u32 = 0; // vectors that a thread keeps with their weights, and does not look at again; 0: it does

struct Params {
    rows: u32,
    width: u32, // in vectors
    eps: f32,
}
// include rms_put
@group(0) @binding(1) var<storage, read> weight: array<V>;

// include rms_row
// include row_total, by lanes row_total_lanes

var<private> kept: array<V_math, max(HELD, 1u)>;
var<private> kept_weight: array<V_math, max(HELD, 1u)>;

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
    if (HELD > 0u) {
        for (var h = 0u; h < HELD; h++) {
            let i = lane + h * WG;
            if (i < params.width) {
                kept[h] = first_look(start + i);
                kept_weight[h] = V_math(weight[i]);
                squares += kept[h] * kept[h];
            }
        }
    } else {
        for (var i = lane; i < params.width; i += WG) {
            let value = first_look(start + i);
            squares += value * value;
        }
    }
    let total_of_squares = row_total(lane, V_sum(squares));
    let scale = inverseSqrt(total_of_squares / f32(params.width * V_lanes) + params.eps);
    put_row(lane, start, scale);
}
