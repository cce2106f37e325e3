// The weight of an element at a distance in cubic convolution; `a` is the slope at distance one.
fn cubic(distance: f32, a: f32) -> f32 {
    if (distance < 1.0) {
        return ((a + 2.0) * distance - (a + 3.0)) * distance * distance + 1.0;
    }
    if (distance < 2.0) {
        return ((distance - 5.0) * distance + 8.0) * distance * a - 4.0 * a;
    }
    return 0.0;
}
