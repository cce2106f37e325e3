// The row is taken by its RMS norm, whose weight lies behind the bias, or where that would be. What all of it is scaled by does not change the
// bytes: the sums are multiplied with it in the end.
override EPS: f32 = 0.0;

// include row_total, by lanes row_total_lanes

fn taken(i: u32) -> vec4<f32> {
    let at = select(0u, params.columns, BIAS) + i * 4u;
    return vec4<f32>(x[i]) * vec4<f32>(f32(bias[at]), f32(bias[at + 1u]), f32(bias[at + 2u]), f32(bias[at + 3u]));
}

fn squares_of(i: u32) -> f32 {
    let four = vec4<f32>(x[i]);
    return dot(four, four);
}

fn factor_of(lane: u32, squares: f32) -> f32 {
    return inverseSqrt(row_total(lane, squares) / f32(params.depth) + EPS);
}
