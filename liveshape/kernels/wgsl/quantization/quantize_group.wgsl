// Quantizes 32 neighbours of a row to int8, in the order of the nibbles of a weight: the even places, the odd ones, and
// a vector of floats: the step, what the nibbles' offset of 8 adds in steps, the zero point, and what else goes with
// them.
#choice STEPS: own_steps, given_steps
#include quantization/step

alias Eight = array<vec4<f32>, 8>;

#if STEPS == given_steps
// A row has one step and one zero point, which are given.
#include quantization/affine
#include common/bytes

fn step_of(i: u32, largest: u32) -> Step {
    let row = i / params.per_row;
    let size = f32(scale[row]);
    if (!is_number(bitcast<f32>(largest) * (1.0 / size))) {
        return step_of_nan(largest);
    }
    return Step(size, 1.0 / size, f32(signed_byte(zero_point[row / 4u], row % 4u)));
}

fn quantized(values: vec4<f32>, step: Step) -> vec4<f32> {
    return clamp(round(values * step.inverse) + step.zero, vec4<f32>(-128.0), vec4<f32>(127.0));
}
#else
// 32 neighbours have a step of their own.
fn step_of(i: u32, largest: u32) -> Step {
    return step_by(largest);
}

fn quantized(values: vec4<f32>, step: Step) -> vec4<f32> {
    return round(values * step.inverse);
}
#endif

fn store_quantized(i: u32, eight: Eight) {
    store_quantized_with(i, eight, 0.0);
}

fn store_quantized_with(i: u32, eight: Eight, more: f32) {
    var sizes = vec4<u32>();
#unroll n < 8
    sizes = max(sizes, bits(eight[$n]));
#endunroll
    let step = step_of(i, max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)));
    var evens = vec4<u32>();
    var odds = vec4<u32>();
    var total = vec4<f32>(); // of integers, which is exact
#unroll n < 4
    let a_$n = quantized(eight[2 * $n], step);
    let b_$n = quantized(eight[2 * $n + 1], step);
    evens[$n] = pack4xI8(vec4<i32>(vec4<f32>(a_$n.xz, b_$n.xz)));
    odds[$n] = pack4xI8(vec4<i32>(vec4<f32>(a_$n.yw, b_$n.yw)));
    total += a_$n + b_$n;
#endunroll
    let zeros = 32.0 * step.zero;
    out[i * 3u] = evens;
    out[i * 3u + 1u] = odds;
    out[i * 3u + 2u] = bitcast<vec4<u32>>(
        vec4<f32>(step.size, 8.0 * (dot(total, vec4<f32>(1.0)) - zeros), step.zero, more),
    );
}
