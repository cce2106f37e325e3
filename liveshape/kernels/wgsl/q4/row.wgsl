// The rows of floats of a 4-bit linear layer, as they are or normalized.
#choice NORM: none, rms
#if NORM == rms
// The RMSNorm of the only row of x, fused: every workgroup computes it, summed in the order of rms_norm.wgsl, and keeps
// it in its memory. The weight of the norm lies behind the bias, or where that would be.
override EPS: f32 = 0.0;
override ROW_VEC4S: u32 = 1; // vec4s of the depth, which is a multiple of 8

var<workgroup> normed_row: array<vec4<f32>, ROW_VEC4S>;

#include reduction/across_workgroup

fn load_row(thread: u32) {
    var squares = vec4<f32>();
    for (var i = thread; i < ROW_VEC4S; i += WG) {
        let four = x_four(0u, i * 4u);
        squares += four * four;
    }
    let total = workgroup_sum(thread, squares[0] + squares[1] + squares[2] + squares[3]);
    let scale = inverseSqrt(total / f32(params.depth) + EPS);
    for (var i = thread; i < ROW_VEC4S; i += WG) {
        let at = select(0u, bias_columns(), BIAS) + i * 4u;
        let factors = vec4<f32>(f32(bias[at]), f32(bias[at + 1u]), f32(bias[at + 2u]), f32(bias[at + 3u]));
        normed_row[i] = x_four(0u, i * 4u) * scale * factors;
    }
    workgroupBarrier();
}

fn row_four(row: u32, k: u32) -> vec4<f32> {
    return normed_row[k / 4u];
}
#else
// The rows of x as they are.
fn load_row(thread: u32) {
}

fn row_four(row: u32, k: u32) -> vec4<f32> {
    return x_four(row, k);
}
#endif
