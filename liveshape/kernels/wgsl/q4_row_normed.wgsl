// The only row of x by its RMS norm, whose weight lies where a bias would: every workgroup makes it for itself, in the
// order of sums of rms_norm, and keeps it.
override EPS: f32 = 0.0;
override KEPT: u32 = 1; // fours of the depth, which is a multiple of 8

var<workgroup> kept: array<vec4<f32>, KEPT>;

// include row_total

fn take_row(lane: u32) {
    var squares = vec4<f32>();
    for (var i = lane; i < KEPT; i += WG) {
        let four = x_four(0u, i * 4u);
        squares += four * four;
    }
    let total = row_total(lane, squares[0] + squares[1] + squares[2] + squares[3]);
    let scale = inverseSqrt(total / f32(params.depth) + EPS);
    for (var i = lane; i < KEPT; i += WG) {
        let k = i * 4u;
        let factors = vec4<f32>(f32(bias[k]), f32(bias[k + 1u]), f32(bias[k + 2u]), f32(bias[k + 3u]));
        kept[i] = x_four(0u, k) * scale * factors;
    }
    workgroupBarrier();
}

fn row_four(row: u32, k: u32) -> vec4<f32> {
    return kept[k / 4u];
}
