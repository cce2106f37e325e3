// What two lines of halves were divided by, given back to their product: the smaller first, so that no number between
// leaves the range of floats where the result does not.
fn given_back(sum: f32, one: f32, other: f32) -> f32 {
    return sum * min(one, other) * max(one, other);
}
