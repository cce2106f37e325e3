// Quantizes 32 neighbours of a row to int8, in the order of the nibbles of a weight: the even places, the odd ones, and
// a vector of floats: the step, what the nibbles' offset of 8 adds in steps, the zero point, and what else goes with
// them.
#choice STEPS: own_steps, given_steps
#include quantization/step

struct Eight {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
    e: vec4<f32>,
    f: vec4<f32>,
    g: vec4<f32>,
    h: vec4<f32>,
}

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

fn quantized_one(value: f32, step: Step) -> f32 {
    return in_steps(value, step.inverse, step.zero, -128.0, 127.0);
}

fn quantized(values: vec4<f32>, step: Step) -> vec4<f32> {
    return vec4<f32>(
        quantized_one(values.x, step), quantized_one(values.y, step),
        quantized_one(values.z, step), quantized_one(values.w, step),
    );
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

fn packed_bytes(a: vec4<f32>) -> u32 {
    return pack4xI8(vec4<i32>(a));
}

fn store_quantized(i: u32, eight: Eight) {
    store_quantized_with(i, eight, 0.0);
}

fn store_quantized_with(i: u32, eight: Eight, more: f32) {
    let upper = max(max(bits(eight.a), bits(eight.b)), max(bits(eight.c), bits(eight.d)));
    let sizes = max(upper, max(max(bits(eight.e), bits(eight.f)), max(bits(eight.g), bits(eight.h))));
    let largest = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
    let step = step_of(i, largest);
    let p = quantized(eight.a, step);
    let q = quantized(eight.b, step);
    let r = quantized(eight.c, step);
    let s = quantized(eight.d, step);
    let t = quantized(eight.e, step);
    let u = quantized(eight.f, step);
    let v = quantized(eight.g, step);
    let w = quantized(eight.h, step);
    out[i * 3u] = vec4<u32>(
        packed_bytes(vec4<f32>(p.xz, q.xz)), packed_bytes(vec4<f32>(r.xz, s.xz)),
        packed_bytes(vec4<f32>(t.xz, u.xz)), packed_bytes(vec4<f32>(v.xz, w.xz)),
    );
    out[i * 3u + 1u] = vec4<u32>(
        packed_bytes(vec4<f32>(p.yw, q.yw)), packed_bytes(vec4<f32>(r.yw, s.yw)),
        packed_bytes(vec4<f32>(t.yw, u.yw)), packed_bytes(vec4<f32>(v.yw, w.yw)),
    );
    let total = dot((p + q + r + s) + (t + u + v + w), vec4<f32>(1.0)) - 32.0 * step.zero;
    out[i * 3u + 2u] = bitcast<vec4<u32>>(vec4<f32>(step.size, 8.0 * total, step.zero, more));
}
