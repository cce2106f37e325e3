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

#if ROW == rms
#include q4/row_norm
#endif

fn staged_at(i: u32) -> u32 {
    return i + select(0u, i / 8u, PADDED);
}

// Every workgroup multiplies the row by the weight of its RMSNorm; the products are scaled.
fn load_row(thread: u32) {
    var squares = vec4<f32>();
    for (var i = thread; i < ROW_VEC4S; i += WG) {
        let four = x_four(0u, i * 4u);
#if ROW == rms
        staged_row[staged_at(i)] = four * norm_weight_four(i);
        squares += four * four;
#else
        staged_row[staged_at(i)] = four;
#endif
    }
#if ROW == rms
    share_sum(thread, squares[0] + squares[1] + squares[2] + squares[3]);
#endif
    workgroupBarrier();
}

fn row_four(row: u32, k: u32) -> vec4<f32> {
    return staged_row[staged_at(k / 4u)];
}
#endif

fn scaled(sums: vec4<f32>) -> vec4<f32> {
#if ROW == rms
    return sums * norm_scale();
#else
    return sums;
#endif
}
