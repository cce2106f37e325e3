#choice NORM: none, rms
#if NORM == rms
// The only row of x by its RMS norm, whose weight lies behind the bias, or where that would be: every workgroup makes it
// for itself, in the order of sums of rms_norm, and keeps it.
override EPS: f32 = 0.0;
override KEPT: u32 = 1; // fours of the depth, which is a multiple of 8

var<workgroup> kept: array<vec4<f32>, KEPT>;

#include reduction/across_workgroup

fn take_row(lane: u32) {
    var squares = vec4<f32>();
    for (var i = lane; i < KEPT; i += WG) {
        let four = x_four(0u, i * 4u);
        squares += four * four;
    }
    let total = row_total(lane, squares[0] + squares[1] + squares[2] + squares[3]);
    let scale = inverseSqrt(total / f32(params.depth) + EPS);
    for (var i = lane; i < KEPT; i += WG) {
        let at = select(0u, params.columns, BIAS) + i * 4u;
        let factors = vec4<f32>(f32(bias[at]), f32(bias[at + 1u]), f32(bias[at + 2u]), f32(bias[at + 3u]));
        kept[i] = x_four(0u, i * 4u) * scale * factors;
    }
    workgroupBarrier();
}

fn row_four(row: u32, k: u32) -> vec4<f32> {
    return kept[k / 4u];
}
#else
// The rows of x as they are.
fn take_row(lane: u32) {
}

fn row_four(row: u32, k: u32) -> vec4<f32> {
    return x_four(row, k);
}
#endif
