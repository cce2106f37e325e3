// The row waits for the factor of its RMS norm: squares came with its bytes.
override EPS: f32 = 0.0;

// include q4_squares, by lanes q4_squares_lanes

fn factor_of(lane: u32) -> f32 {
    return inverseSqrt(squares_of_row(lane) / f32(params.depth) + EPS);
}
