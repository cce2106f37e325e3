// The quantization step of activations and its zero point.
const INFINITE: u32 = 0x7f800000u; // the bits of what is infinite or, above, no number
const SMALLEST: f32 = 1e-35; // below this a step has no inverse

struct Step {
    size: f32,
    inverse: f32,
    zero: f32,
}

fn bits(values: vec4<f32>) -> vec4<u32> {
    return bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu);
}

// Integers cannot say NaN: the step does, and so every sum of the row.
fn step_of_nan(largest: u32) -> Step {
    return Step(bitcast<f32>(largest | 0x7fc00000u), 0.0, 0.0);
}

// Symmetric quantization: a step of which the largest magnitude, by its bits, is 127.
fn step_by(largest: u32) -> Step {
    let peak = bitcast<f32>(largest);
    if (largest >= INFINITE) {
        return step_of_nan(largest);
    }
    return Step(peak / 127.0, select(0.0, 127.0 / peak, peak > SMALLEST), 0.0);
}
