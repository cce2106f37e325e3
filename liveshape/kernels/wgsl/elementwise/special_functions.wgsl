// What WGSL lacks or leaves to the driver, which may be off by far: sin by 1e-4 and atan by 4096 units in the last
// place.
var<private> infinity_bits: u32 = 0x7f800000u; // a constant expression may not be infinite

fn infinity() -> vec4<f32> {
    return vec4<f32>(bitcast<f32>(infinity_bits));
}

fn not_a_number() -> vec4<f32> {
    return vec4<f32>(bitcast<f32>(infinity_bits | 0x400000u));
}

// Compilers may assume that x != x never holds; bits they must look at.
fn is_nan(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}

fn is_infinite(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) == vec4<u32>(0x7f800000u);
}

// The drivers' sign(), min() and max() treat NaN and -0 as they like.
fn with_sign(magnitude: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    let sign_bit = vec4<u32>(0x80000000u);
    return bitcast<vec4<f32>>((bitcast<vec4<u32>>(magnitude) & ~sign_bit) | (bitcast<vec4<u32>>(x) & sign_bit));
}

fn flags(condition: vec4<bool>) -> vec4<f32> {
    return select(vec4<f32>(0.0), vec4<f32>(1.0), condition);
}

// 2 to the power n, whole and within what a float holds.
fn power_of_two(n: vec4<i32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(n + 127) << vec4<u32>(23u));
}

fn exponential(x: vec4<f32>) -> vec4<f32> {
    let bounded = clamp(x, vec4<f32>(-120.0), vec4<f32>(120.0));
    let n = round(bounded * 1.44269504);
    let r = (bounded - n * 0.693359375) + n * 2.12194440e-4;
    let z = r * r;
    let tail = ((((1.9875691500e-4 * r + 1.3981999507e-3) * r + 8.3334519073e-3) * r + 4.1665795894e-2) * r
        + 1.6666665459e-1) * r + 5.0000001201e-1;
    // In two factors: 2 to the power n alone may overflow where the result does not.
    let half = vec4<i32>(n) >> vec4<u32>(1u);
    let result = (tail * z + r + 1.0) * power_of_two(half) * power_of_two(vec4<i32>(n) - half);
    return select(result, x, is_nan(x));
}

// log(1 + m) + shift for m from sqrt(1/2) - 1 to sqrt(2) - 1.
fn log_near_one(m: vec4<f32>, shift: vec4<f32>) -> vec4<f32> {
    let z = m * m;
    let tail = ((((((((7.0376836292e-2 * m - 1.1514610310e-1) * m + 1.1676998740e-1) * m - 1.2420140846e-1) * m
        + 1.4249322787e-1) * m - 1.6668057665e-1) * m + 2.0000714765e-1) * m - 2.4999993993e-1) * m
        + 3.3333331174e-1) * m * z;
    return m + (tail - 0.5 * z + shift);
}

fn logarithm(x: vec4<f32>) -> vec4<f32> {
    // Subnormal numbers are scaled up; what a device flushes to zero stays zero.
    let tiny = x < vec4<f32>(1.17549435e-38);
    let bits = bitcast<vec4<u32>>(select(x, x * 8388608.0, tiny));
    // The mantissa goes from sqrt(1/2) to sqrt(2), so that numbers near one keep their digits.
    let shifted = bits + vec4<u32>(0x3f800000u - 0x3f3504f3u);
    let n = vec4<f32>(vec4<i32>(shifted >> vec4<u32>(23u)) - 127) - select(vec4<f32>(0.0), vec4<f32>(23.0), tiny);
    let mantissa = bitcast<vec4<f32>>((shifted & vec4<u32>(0x7fffffu)) + vec4<u32>(0x3f3504f3u));
    let result = n * 0.693359375 + log_near_one(mantissa - 1.0, n * -2.12194440e-4);
    let positive = select(result, x, (x == infinity()) | is_nan(x));
    return select(select(positive, not_a_number(), x < vec4<f32>(0.0)), -infinity(), x == vec4<f32>(0.0));
}

// Not by way of (1 + x) - 1, which compilers take for x.
fn log_one_plus(x: vec4<f32>) -> vec4<f32> {
    let near = (x > vec4<f32>(-0.29)) & (x < vec4<f32>(0.41));
    return select(logarithm(1.0 + x), log_near_one(x, vec4<f32>(0.0)), near);
}

fn hyperbolic_tangent(x: vec4<f32>) -> vec4<f32> {
    let z = x * x;
    let near = x + x * z * ((((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z
        + 1.33314422036e-1) * z - 3.33332819422e-1);
    let far = with_sign(1.0 - 2.0 / (exponential(2.0 * abs(x)) + 1.0), x);
    return select(far, near, abs(x) < vec4<f32>(0.625));
}

fn exponential_minus_one(x: vec4<f32>) -> vec4<f32> {
    let t = hyperbolic_tangent(0.5 * x);
    return select(exponential(x) - 1.0, 2.0 * t / (1.0 - t), abs(x) < vec4<f32>(0.75));
}

fn hyperbolic_sine(x: vec4<f32>) -> vec4<f32> {
    let e = exponential_minus_one(abs(x));
    let root = exponential(0.5 * abs(x));
    let near = 0.5 * (e + e / (e + 1.0));
    return with_sign(select(0.5 * root * root, near, abs(x) < vec4<f32>(10.0)), x);
}

fn hyperbolic_cosine(x: vec4<f32>) -> vec4<f32> {
    let root = exponential(0.5 * abs(x));
    let e = root * root;
    return select(0.5 * root * root, 0.5 * (e + 1.0 / e), abs(x) < vec4<f32>(10.0));
}

fn inverse_hyperbolic_sine(x: vec4<f32>) -> vec4<f32> {
    let t = abs(x);
    let near = log_one_plus(t + t * t / (1.0 + sqrt(t * t + 1.0)));
    return with_sign(select(near, logarithm(t) + 0.693147182, t > vec4<f32>(1.0e9)), x);
}

fn inverse_hyperbolic_cosine(x: vec4<f32>) -> vec4<f32> {
    let t = x - 1.0;
    let near = log_one_plus(t + sqrt(t * (t + 2.0)));
    let result = select(near, logarithm(x) + 0.693147182, x > vec4<f32>(1.0e9));
    return select(result, not_a_number(), x < vec4<f32>(1.0));
}

#include elementwise/circular_functions

fn arc_tangent(x: vec4<f32>) -> vec4<f32> {
    let t = abs(x);
    let steep = t > vec4<f32>(2.41421356);
    let middle = t > vec4<f32>(0.414213562);
    let reduced = select(select(t, (t - 1.0) / (t + 1.0), middle), -1.0 / t, steep);
    let base = select(select(vec4<f32>(0.0), vec4<f32>(0.785398163), middle), vec4<f32>(1.57079633), steep);
    let z = reduced * reduced;
    let result = base + reduced + reduced * z * (((8.05374449538e-2 * z - 1.38776856032e-1) * z
        + 1.99777106478e-1) * z - 3.33329491539e-1);
    return with_sign(result, x);
}

fn arc_tangent_of_two(y: vec4<f32>, x: vec4<f32>) -> vec4<f32> {
    let both = is_infinite(x) & is_infinite(y);
    let ratio = select(abs(y) / abs(x), vec4<f32>(1.0), both);
    let slope = select(arc_tangent(ratio), vec4<f32>(0.0), y == vec4<f32>(0.0));
    let behind = (bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u)) != vec4<u32>(0u);
    let angle = with_sign(select(slope, 3.14159265 - slope, behind), y);
    return select(angle, x + y, is_nan(x) | is_nan(y));
}

// The root of the sum of squares, none of which overflows.
fn hypotenuse(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let most = max(abs(a), abs(b));
    let ratio = min(abs(a), abs(b)) / most;
    let length = select(most * sqrt(1.0 + (ratio * ratio)), most, most == vec4<f32>(0.0));
    let known = select(length, not_a_number(), is_nan(a) | is_nan(b));
    return select(known, infinity(), is_infinite(a) | is_infinite(b));
}

fn arc_sine(x: vec4<f32>) -> vec4<f32> {
    return arc_tangent_of_two(x, sqrt((1.0 - x) * (1.0 + x)));
}

fn arc_cosine(x: vec4<f32>) -> vec4<f32> {
    return 2.0 * arc_tangent_of_two(sqrt(1.0 - x), sqrt(1.0 + x));
}

// Within two units in the last place (N. Juffa's erff with the exponent of two, which is at most 0.19 where it counts).
fn error_function(x: vec4<f32>) -> vec4<f32> {
    let t = min(abs(x), vec4<f32>(10.0));
    let s = t * t;
    let high = (-2.49374844e-5 * t + 5.52836593e-4) * s + (-5.60337615e-3 * t + 3.49920227e-2);
    let power = (((high * t - 1.54047914e-1) * t - 9.15890167e-1) * t - 1.85700116e-1) * t - 1.44269504 * t;
    let far = with_sign(1.0 - exp2(power), x);
    let z = x * x;
    let near = x + x * (((((-5.96761703e-4 * z + 4.99119423e-3) * z - 2.67681349e-2) * z + 1.12819925e-1) * z
        - 3.76125336e-1) * z + 1.28379166e-1);
    return select(select(far, near, t < vec4<f32>(0.927734375)), x, is_nan(x));
}

// The normal distribution below x, within 2e-7 of one and, far below zero, 1e-5 of itself, where one plus an error
// function would have lost all digits. Twice its smaller tail is two to the power of a polynomial of x over root two.
fn normal_below(x: vec4<f32>) -> vec4<f32> {
    let t = min(abs(x) * 0.707106781, vec4<f32>(10.0));
    let high = (((-3.7851908e-7 * t + 9.5110937e-6) * t - 1.00479173e-4) * t + 5.60855775e-4) * t - 1.52068998e-3;
    let middle = (((high * t - 9.9507537e-4) * t + 2.85803129e-2) * t - 1.48664242e-1) * t - 9.18374914e-1;
    let tail = 0.5 * exp2((middle * t - 1.62791146) * t);
    return select(1.0 - tail, tail, x < vec4<f32>(0.0));
}
