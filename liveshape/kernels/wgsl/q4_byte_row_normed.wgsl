// The row is taken by its RMS norm, whose weight lies where a bias would. What all of it is scaled by does not change the
// bytes: the sums are multiplied with it in the end.
override EPS: f32 = 0.0;

// include row_total

fn taken(i: u32) -> vec4<f32> {
    let k = i * 4u;
    return vec4<f32>(x[i]) * vec4<f32>(f32(bias[k]), f32(bias[k + 1u]), f32(bias[k + 2u]), f32(bias[k + 3u]));
}

fn squares_of(i: u32) -> f32 {
    let four = vec4<f32>(x[i]);
    return dot(four, four);
}

fn factor_of(lane: u32, squares: f32) -> f32 {
    return inverseSqrt(row_total(lane, squares) / f32(params.depth) + EPS);
}
