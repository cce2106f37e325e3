// The power of two by which numbers are divided to become halves: the largest then lies below 2^15, so that none is
// infinite, and what is 2^28 times smaller still has all of its digits.
struct HalfScale {
    factor: f32,
    inverse: f32,
}

fn half_scale(largest: f32) -> HalfScale {
    let exponent = (bitcast<u32>(largest) >> 23u) & 255u;
    // Zeros stay zeros; infinities and what is no number stay what they are.
    if (exponent == 255u) {
        return HalfScale(1.0, 1.0);
    }
    let lowered = max(exponent, 15u) - 14u; // of the smallest both are floats
    return HalfScale(bitcast<f32>(lowered << 23u), bitcast<f32>((254u - lowered) << 23u));
}

fn eight_halves(low: vec4<f32>, high: vec4<f32>) -> vec4<u32> {
    return vec4<u32>(
        pack2x16float(low.xy), pack2x16float(low.zw), pack2x16float(high.xy), pack2x16float(high.zw),
    );
}
