// A float as the sum of two halves, which keep 22 bits of it: the nearest half, and what that leaves, times 2^11 so that it
// is no smaller: drivers may take subnormal halves for zeros. Numbers are divided by a power of two before, as
// half_exponent.wgsl has it, by the largest that is finite.
const INFINITE: u32 = 0x7f800000;
const LEAST_NORMAL: f32 = 6.103515625e-05; // of halves
#include quantization/rest_scale

// Absolute values, of which infinities and what is no number count as zero.
fn sizes_of(four: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(four) & vec4<u32>(0x7fffffff);
    return bitcast<vec4<f32>>(select(bits, vec4<u32>(), bits >= vec4<u32>(INFINITE)));
}

struct SplitFour {
    high: vec2<u32>, // two halves to a word
    low: vec2<u32>,
}

fn split_four(four: vec4<f32>, inverse: f32) -> SplitFour {
    let size = bitcast<vec4<u32>>(four) & vec4<u32>(0x7fffffff);
    let scaled = four * inverse;
    let large = (abs(scaled) >= vec4<f32>(LEAST_NORMAL)) | (size == vec4<u32>());
    if (!all(large & (size < vec4<u32>(INFINITE)))) {
        return rare_four(four, size, inverse);
    }
    let high = vec2<u32>(pack2x16float(scaled.xy), pack2x16float(scaled.zw));
    let left = (scaled - vec4<f32>(unpack2x16float(high.x), unpack2x16float(high.y))) * REST_SCALE;
    return SplitFour(high, vec2<u32>(pack2x16float(left.xy), pack2x16float(left.zw)));
}

// Where one of four is very small, or none. No number but zero has a high part of zero, and an infinity is the smallest
// half and an infinite one. So the product with an infinity, of which the three that are summed are no product of two low
// parts, is that of floats: infinite, or no number where the other factor is zero or not one.
fn rare_four(four: vec4<f32>, size: vec4<u32>, inverse: f32) -> SplitFour {
    let sign = (bitcast<vec4<u32>>(four) >> vec4<u32>(16u)) & vec4<u32>(0x8000);
    let scaled = select(vec4<f32>(), four, size < vec4<u32>(INFINITE)) * inverse;
    var high = halves_apart(scaled);
    let none = (high & vec4<u32>(0x7fff)) == vec4<u32>();
    high = select(high, sign | vec4<u32>(1u), none & (size != vec4<u32>()));
    high = select(high, vec4<u32>(0x7e00), size > vec4<u32>(INFINITE));
    let highs = pairs(high);
    var low = halves_apart((scaled - vec4<f32>(unpack2x16float(highs.x), unpack2x16float(highs.y))) * REST_SCALE);
    low = select(low, sign | vec4<u32>(0x7c00), size == vec4<u32>(INFINITE));
    low = select(low, vec4<u32>(), size > vec4<u32>(INFINITE));
    return SplitFour(highs, pairs(low));
}

fn halves_apart(four: vec4<f32>) -> vec4<u32> {
    let both = vec2<u32>(pack2x16float(four.xy), pack2x16float(four.zw));
    return vec4<u32>(both.x & 0xffff, both.x >> 16u, both.y & 0xffff, both.y >> 16u);
}

fn pairs(four: vec4<u32>) -> vec2<u32> {
    return four.xz | (four.yw << vec2<u32>(16u));
}
