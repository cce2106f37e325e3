// a / b by floats, which takes half of the time: exact below 2^20, where the middle of a step is further from its ends
// than rounding reaches. What is divided so is a place of a depth, which planning holds below that.
fn quotient(a: u32, b: u32) -> u32 {
    return u32((f32(a) + 0.5) / f32(b));
}
