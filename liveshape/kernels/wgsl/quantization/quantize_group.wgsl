// 32 neighbours of a row as eight-bit integers, in the order in which the nibbles of a weight want them: the even places,
// the odd ones, and a vector of floats: the step, what an offset of 8 of the other factor adds in steps, the zero point,
// and what else goes with them.
#choice STEPS: of_groups, of_rows
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

#if STEPS == of_rows
// A row has one step and one zero point, which are given.
#include quantization/affine
#include common/bytes

fn step_of(i: u32, largest: u32) -> Step {
    let row = i / params.per_row;
    let size = f32(scale[row]);
    if (!is_number(bitcast<f32>(largest) * (1.0 / size))) {
        return without_number(largest);
    }
    return Step(size, 1.0 / size, f32(signed_byte(zero_point[row / 4u], row % 4u)));
}

fn in_byte(value: f32, step: Step) -> f32 {
    return in_steps(value, step.inverse, step.zero, -128.0, 127.0);
}

fn in_bytes(values: vec4<f32>, step: Step) -> vec4<f32> {
    return vec4<f32>(
        in_byte(values.x, step), in_byte(values.y, step), in_byte(values.z, step), in_byte(values.w, step),
    );
}
#else
// 32 neighbours have a step of their own.
fn step_of(i: u32, largest: u32) -> Step {
    return step_by(largest);
}

fn in_bytes(values: vec4<f32>, step: Step) -> vec4<f32> {
    return round(values * step.inverse);
}
#endif

fn word_of_bytes(a: vec4<f32>) -> u32 {
    return pack4xI8(vec4<i32>(a));
}

fn put_group(i: u32, eight: Eight) {
    put_group_with(i, eight, 0.0);
}

fn put_group_with(i: u32, eight: Eight, more: f32) {
    let upper = max(max(bits(eight.a), bits(eight.b)), max(bits(eight.c), bits(eight.d)));
    let sizes = max(upper, max(max(bits(eight.e), bits(eight.f)), max(bits(eight.g), bits(eight.h))));
    let largest = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
    let step = step_of(i, largest);
    let p = in_bytes(eight.a, step);
    let q = in_bytes(eight.b, step);
    let r = in_bytes(eight.c, step);
    let s = in_bytes(eight.d, step);
    let t = in_bytes(eight.e, step);
    let u = in_bytes(eight.f, step);
    let v = in_bytes(eight.g, step);
    let w = in_bytes(eight.h, step);
    out[i * 3u] = vec4<u32>(
        word_of_bytes(vec4<f32>(p.xz, q.xz)), word_of_bytes(vec4<f32>(r.xz, s.xz)),
        word_of_bytes(vec4<f32>(t.xz, u.xz)), word_of_bytes(vec4<f32>(v.xz, w.xz)),
    );
    out[i * 3u + 1u] = vec4<u32>(
        word_of_bytes(vec4<f32>(p.yw, q.yw)), word_of_bytes(vec4<f32>(r.yw, s.yw)),
        word_of_bytes(vec4<f32>(t.yw, u.yw)), word_of_bytes(vec4<f32>(v.yw, w.yw)),
    );
    let total = dot((p + q + r + s) + (t + u + v + w), vec4<f32>(1.0)) - 32.0 * step.zero;
    out[i * 3u + 2u] = bitcast<vec4<u32>>(vec4<f32>(step.size, 8.0 * total, step.zero, more));
}
