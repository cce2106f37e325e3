// The rows of floats of a 4-bit linear layer: read where they lie, or the only one staged in workgroup memory, as it is
// or normalized.
#choice ROW: global, staged, rms
#if ROW == global
fn load_row(thread: u32) {
}

fn row_four(row: u32, k: u32) -> vec4<f32> {
    return x_four(row, k);
}
#else
override ROW_VEC4S: u32 = 1; // vec4s of the depth, which is a multiple of 8
override PADDED: bool = false; // one vec4 more for eight, so that threads with 32 neighbours each read different banks

const STAGED_VEC4S: u32 = ROW_VEC4S + select(0u, ROW_VEC4S / 8u, PADDED);

var<workgroup> staged_row: array<vec4<f32>, STAGED_VEC4S>;

fn staged_at(i: u32) -> u32 {
    return i + select(0u, i / 8u, PADDED);
}

#if ROW == rms
// The RMSNorm of the row, fused: every workgroup multiplies it by the weight of the norm, which lies behind the bias, or
// where that would be, and sums its squares in the order of rms_norm.wgsl; the products are scaled.
override EPS: f32 = 0.0;

#include reduction/across_workgroup

fn load_row(thread: u32) {
    var squares = vec4<f32>();
    for (var i = thread; i < ROW_VEC4S; i += WG) {
        let at = select(0u, bias_columns(), BIAS) + i * 4u;
        let factors = vec4<f32>(f32(bias[at]), f32(bias[at + 1u]), f32(bias[at + 2u]), f32(bias[at + 3u]));
        let four = x_four(0u, i * 4u);
        staged_row[staged_at(i)] = four * factors;
        squares += four * four;
    }
    share_sum(thread, squares[0] + squares[1] + squares[2] + squares[3]);
    workgroupBarrier();
}

fn scaled(sums: vec4<f32>) -> vec4<f32> {
    return sums * inverseSqrt(shared_sum() / f32(params.depth) + EPS);
}
#else
fn load_row(thread: u32) {
    for (var i = thread; i < ROW_VEC4S; i += WG) {
        staged_row[staged_at(i)] = x_four(0u, i * 4u);
    }
    workgroupBarrier();
}
#endif

fn row_four(row: u32, k: u32) -> vec4<f32> {
    return staged_row[staged_at(k / 4u)];
}
#endif

#if ROW != rms
fn scaled(sums: vec4<f32>) -> vec4<f32> {
    return sums;
}
#endif
