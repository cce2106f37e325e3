// Affine quantization: how many steps a value is from the zero point, halves to even.
fn is_number(value: f32) -> bool {
    return (bitcast<u32>(value) & 0x7fffffffu) <= 0x7f800000u;
}

// As torch casts it: what is no number becomes the integer zero.
fn code_of(value: f32, inverse: f32, zero: f32, low: f32, high: f32) -> i32 {
    let steps = value * inverse;
    return select(0, i32(clamp(round(steps) + zero, low, high)), is_number(steps));
}
