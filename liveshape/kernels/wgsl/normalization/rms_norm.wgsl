// One workgroup per row: out = row * rsqrt(mean(row^2) + eps) * weight, summed in f32.
// Its rows are those of a tensor, or of a sum that is a result as well; what it gives is numbers, or quantized.
#choice ROWS: tensor, sum
#choice OUTPUT: numbers, quantized
// T: f32, f16
override WG: u32 = 256;
override SUBGROUP: u32 = 0;
override HELD: u32 = 0; // vectors that a thread keeps with their weights, and does not look at again; 0: it does

struct Params {
    rows: u32,
    width: u32, // in vectors
    eps: f32,
}
#if OUTPUT == quantized
@group(0) @binding(0) var<storage, read_write> out: array<vec4<u32>>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<V>;
#endif
@group(0) @binding(1) var<storage, read> weight: array<V>;
#if ROWS == sum
@group(0) @binding(2) var<storage, read_write> total: array<V>;
@group(0) @binding(3) var<storage, read> a: array<V>;
@group(0) @binding(4) var<storage, read> b: array<V>;
@group(0) @binding(5) var<uniform> params: Params;
#else
@group(0) @binding(2) var<storage, read> x: array<V>;
@group(0) @binding(3) var<uniform> params: Params;
#endif

#if ROWS == sum
// The sum is rounded before it is normalized, as by two operators.
fn first_look(i: u32) -> V_math {
    let value = V(V_math(a[i]) + V_math(b[i]));
    total[i] = value;
    return V_math(value);
}

// Each lane reads back only what it wrote itself.
fn second_look(i: u32) -> V_math {
    return V_math(total[i]);
}
#else
fn first_look(i: u32) -> V_math {
    return V_math(x[i]);
}

fn second_look(i: u32) -> V_math {
    return V_math(x[i]);
}
#endif

#include reduction/across_workgroup

var<private> kept: array<V_math, max(HELD, 1u)>;
var<private> kept_weight: array<V_math, max(HELD, 1u)>;

#if OUTPUT == quantized
// For 4-bit layers of quantized rows: vectors are of four.
#include quantization/quantize_group

fn normed(start: u32, i: u32, scale: f32) -> vec4<f32> {
    return second_look(start + i) * scale * V_math(weight[i]);
}

fn put_row(lane: u32, start: u32, scale: f32) {
    for (var i = lane * 8u; i < params.width; i += WG * 8u) {
        put_group((start + i) / 8u, Eight(
            normed(start, i, scale), normed(start, i + 1u, scale),
            normed(start, i + 2u, scale), normed(start, i + 3u, scale),
            normed(start, i + 4u, scale), normed(start, i + 5u, scale),
            normed(start, i + 6u, scale), normed(start, i + 7u, scale),
        ));
    }
}
#else
fn put_row(lane: u32, start: u32, scale: f32) {
    for (var h = 0u; h < HELD; h++) {
        let i = lane + h * WG;
        if (i < params.width) {
            out[start + i] = V(kept[h] * scale * kept_weight[h]);
        }
    }
    for (var i = lane; HELD == 0u && i < params.width; i += WG) {
        out[start + i] = V(second_look(start + i) * scale * V_math(weight[i]));
    }
}
#endif

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
