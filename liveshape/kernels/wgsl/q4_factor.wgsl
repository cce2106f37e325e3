// The sums of a row of bytes are what they are.
fn factor_of(lane: u32) -> f32 {
    return 1.0;
}
