// The RMSNorm of the only row of a layer, fused: its weight lies behind the bias, or where that would be. Squares are
// summed in the order of rms_norm.wgsl.
override EPS: f32 = 0.0;

#include reduction/across_workgroup

fn norm_weight_four(i: u32) -> vec4<f32> {
    let at = params.norm_at + i * 4u;
    return vec4<f32>(f32(bias[at]), f32(bias[at + 1u]), f32(bias[at + 2u]), f32(bias[at + 3u]));
}

fn norm_scale() -> f32 {
    return inverseSqrt(shared_sum() / f32(params.depth) + EPS);
}
