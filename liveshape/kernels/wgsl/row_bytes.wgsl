// Rows of numbers as eight-bit integers, in the order in which the nibbles of a weight want them: of 32 neighbours the
// even places, the odd ones, and a vector of floats: the step, what an offset of 8 of the other factor adds in steps, the
// zero point. The included file says where the step comes from.
// T: f32, f16
override WG: u32 = 64;

struct Params {
    count: u32, // of groups of 32 neighbours
    per_row: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<T>>;
// include row_steps_own

fn word_of(a: vec4<f32>) -> u32 {
    return pack4xI8(vec4<i32>(a));
}

fn each(i: u32) {
    let a = vec4<f32>(x[i * 8u]);
    let b = vec4<f32>(x[i * 8u + 1u]);
    let c = vec4<f32>(x[i * 8u + 2u]);
    let d = vec4<f32>(x[i * 8u + 3u]);
    let e = vec4<f32>(x[i * 8u + 4u]);
    let f = vec4<f32>(x[i * 8u + 5u]);
    let g = vec4<f32>(x[i * 8u + 6u]);
    let h = vec4<f32>(x[i * 8u + 7u]);
    let sizes = max(max(max(bits(a), bits(b)), max(bits(c), bits(d))), max(max(bits(e), bits(f)), max(bits(g), bits(h))));
    let largest = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
    let step = step_of(i, largest);
    let p = in_bytes(a, step);
    let q = in_bytes(b, step);
    let r = in_bytes(c, step);
    let s = in_bytes(d, step);
    let t = in_bytes(e, step);
    let u = in_bytes(f, step);
    let v = in_bytes(g, step);
    let w = in_bytes(h, step);
    out[i * 3u] = vec4<u32>(
        word_of(vec4<f32>(p.xz, q.xz)), word_of(vec4<f32>(r.xz, s.xz)),
        word_of(vec4<f32>(t.xz, u.xz)), word_of(vec4<f32>(v.xz, w.xz)),
    );
    out[i * 3u + 1u] = vec4<u32>(
        word_of(vec4<f32>(p.yw, q.yw)), word_of(vec4<f32>(r.yw, s.yw)),
        word_of(vec4<f32>(t.yw, u.yw)), word_of(vec4<f32>(v.yw, w.yw)),
    );
    let total = dot((p + q + r + s) + (t + u + v + w), vec4<f32>(1.0)) - 32.0 * step.zero;
    out[i * 3u + 2u] = bitcast<vec4<u32>>(vec4<f32>(step.size, 8.0 * total, step.zero, 0.0));
}

// include each
