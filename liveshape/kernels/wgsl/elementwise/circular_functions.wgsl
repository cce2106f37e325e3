// sin, cos and tan, exact in their reduction for every float: WGSL lets drivers be off by anything beyond pi.

// x = quarter * pi / 2 + rest, modulo a whole turn.
struct Angle {
    quarter: vec4<i32>,
    rest: vec4<f32>,
}

// The first binary digits of 2 / pi, behind 32 zeros.
const TWO_OVER_PI = array<u32, 8>(
    0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu,
);

// The upper half of a product of 64 bits.
fn multiply_high(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let first = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let second = (a & 0xffffu) * (b >> 16u) + (first & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u);
}

// The 32 bits of two words from bit `start` on, where start is below 32.
fn bits_from(high: u32, low: u32, start: u32) -> u32 {
    return (high << start) | ((low >> 1u) >> (31u - start));
}

// Payne-Hanek: of 2 / pi only the 96 bits count that give less than a whole turn and more than a float holds. The
// quarter in x, and in y the bits of the rest.
fn large_angle(x: f32) -> vec2<u32> {
    var digits = TWO_OVER_PI;
    let bits = bitcast<u32>(x);
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    // x is mantissa * 2^(exponent - 150); digits that are worth four quarters and more are passed over.
    let start = ((bits >> 23u) & 0xffu) - 120u;
    let word = min(start >> 5u, 4u);
    let shift = start & 31u;
    let high = bits_from(digits[word], digits[word + 1u], shift);
    let middle = bits_from(digits[word + 1u], digits[word + 2u], shift);
    let low = bits_from(digits[word + 2u], digits[word + 3u], shift);
    // The lower 96 bits of the product: two of the quarter, then its fraction.
    let carried = multiply_high(mantissa, low);
    let second = mantissa * middle + carried;
    let carry = select(0u, 1u, second < carried);
    let first = mantissa * high + multiply_high(mantissa, middle) + carry;
    var fraction = vec2<u32>(bits_from(first, second, 2u), bits_from(second, mantissa * low, 2u));
    // To the nearest quarter.
    let above = fraction.x >> 31u;
    if (above == 1u) {
        fraction = vec2<u32>(~fraction.x + select(0u, 1u, fraction.y == 0u), ~fraction.y + 1u);
    }
    let zeros = min(countLeadingZeros(fraction.x), 31u);
    let rest = f32(bits_from(fraction.x, fraction.y, zeros)) * 3.657295198e-10 * bitcast<f32>((127u - zeros) << 23u);
    let negative = (bits >> 31u) ^ above;
    let quarter = (first >> 30u) + above;
    return vec2<u32>(select(quarter, 0u - quarter, (bits >> 31u) == 1u), bitcast<u32>(rest) | (negative << 31u));
}

fn angle(radians: vec4<f32>) -> Angle {
    // Pi/2 is taken off in pieces of eight bits, so that the products are exact to 1e5.
    let q = round(radians * 0.636619772);
    let reduced = (((radians - q * 1.5703125) - q * 0.0004825592041015625) - q * 1.2665987014770508e-6) - q * 9.920935796805404e-10;
    let far = abs(radians) > vec4<f32>(1.0e5);
    var result = Angle(vec4<i32>(select(q, vec4<f32>(0.0), far)), clamp(reduced, vec4<f32>(-0.8), vec4<f32>(0.8)));
    if (any(far)) {
        for (var k = 0u; k < 4u; k++) {
            if (abs(radians[k]) > 1.0e5) {
                let large = large_angle(radians[k]);
                result.quarter[k] = bitcast<i32>(large.x);
                result.rest[k] = bitcast<f32>(large.y);
            }
        }
    }
    return result;
}

// sin of an angle and of `turns` quarter turns.
fn sine_of(angle: Angle, turns: i32) -> vec4<f32> {
    let r = angle.rest;
    let z = r * r;
    let odd = r + r * z * ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1);
    let even = 1.0 - 0.5 * z + z * z * ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2);
    let quarter = angle.quarter + turns;
    let value = select(odd, even, (quarter & vec4<i32>(1)) != vec4<i32>(0));
    return select(value, -value, (quarter & vec4<i32>(2)) != vec4<i32>(0));
}

fn finite_or_nan(value: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    return select(value, not_a_number(), is_nan(x) | is_infinite(x));
}

fn sine(x: vec4<f32>) -> vec4<f32> {
    return finite_or_nan(sine_of(angle(x), 0), x);
}

fn cosine(x: vec4<f32>) -> vec4<f32> {
    return finite_or_nan(sine_of(angle(x), 1), x);
}

fn tangent(x: vec4<f32>) -> vec4<f32> {
    let reduced = angle(x);
    return finite_or_nan(sine_of(reduced, 0) / sine_of(reduced, 1), x);
}
