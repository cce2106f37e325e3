// A float as the sum of two halves, which keep 22 bits of it: the nearest half, and what that leaves. Numbers are divided
// by a power of two before, as half_exponent.wgsl has it, by the largest that is finite.
//
// What a half leaves is taken from bits that were selected: of a number that was only packed and unpacked, NVIDIA's
// compiler takes the number itself, so that nothing is left and products have errors of halves (5e-3 of an encoder).
const INFINITE: u32 = 0x7f800000;

// Absolute values, of which infinities and what is no number count as zero.
fn sizes_of(four: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(four) & vec4<u32>(0x7fffffff);
    return bitcast<vec4<f32>>(select(bits, vec4<u32>(), bits >= vec4<u32>(INFINITE)));
}

struct SplitFour {
    high: vec2<u32>, // two halves to a word
    low: vec2<u32>,
}

// An infinity is its smallest half and the infinite one. No number but zero has a high part of zero. So the product with
// an infinity, of which the three that are summed are no product of two low parts, is that of floats: infinite, or no
// number where the other factor is zero or not one.
fn split_four(four: vec4<f32>, inverse: f32) -> SplitFour {
    let bits = bitcast<vec4<u32>>(four);
    let size = bits & vec4<u32>(0x7fffffff);
    let sign = (bits >> vec4<u32>(16u)) & vec4<u32>(0x8000);
    let finite = size < vec4<u32>(INFINITE);
    let scaled = select(vec4<f32>(), four, finite) * inverse;
    let nearest = vec2<u32>(pack2x16float(scaled.xy), pack2x16float(scaled.zw));
    var high = vec4<u32>(nearest.x & 0xffff, nearest.x >> 16u, nearest.y & 0xffff, nearest.y >> 16u);
    let none = (high & vec4<u32>(0x7fff)) == vec4<u32>();
    high = select(high, sign | vec4<u32>(1u), none & (size != vec4<u32>()));
    high = select(high, vec4<u32>(0x7e00), size > vec4<u32>(INFINITE));
    let highs = pairs(high);
    let left = scaled - vec4<f32>(unpack2x16float(highs.x), unpack2x16float(highs.y));
    let lows = vec2<u32>(pack2x16float(left.xy), pack2x16float(left.zw));
    var low = vec4<u32>(lows.x & 0xffff, lows.x >> 16u, lows.y & 0xffff, lows.y >> 16u);
    low = select(low, sign | vec4<u32>(0x7c00), size == vec4<u32>(INFINITE));
    low = select(low, vec4<u32>(), size > vec4<u32>(INFINITE));
    return SplitFour(highs, pairs(low));
}

fn pairs(four: vec4<u32>) -> vec2<u32> {
    return four.xz | (four.yw << vec2<u32>(16u));
}
