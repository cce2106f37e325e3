// Functions of one tensor that few programs have: errors and gammas.
// Polynomials are fitted in t, which goes from -1 to 1 where they hold; their errors are below two units in the last
// place.
const PI = 3.14159265;

// Beyond the middle by way of exp(x * x) * erfc(x), so that small results keep their digits. The square is taken apart:
// its rounding, times the square itself, would be what is lost.
fn complementary_error(x: vec4<f32>) -> vec4<f32> {
    let a = min(abs(x), vec4<f32>(12.0));
    let high = bitcast<vec4<f32>>(bitcast<vec4<u32>>(a) & vec4<u32>(0xfffff000u));
    let square = exponential(-(high * high)) * exponential((high - a) * (high + a));
    let t = (((a - 2.0) / (a + 2.0)) - 0.04) * 1.5625;
    let tail = ((((((((2.251282e-6 * t - 1.409695e-5) * t - 4.687331e-5) * t + 1.9103283e-4) * t + 7.7263394e-4) * t
        - 3.3782765e-3) * t - 1.0427291e-2) * t + 1.1259759e-1) * t - 4.2558926e-1) * t + 9.9454105e-1;
    let far = square * tail / (a + 2.0);
    let result = select(far, 2.0 - far, x < vec4<f32>(0.0));
    return select(select(result, 1.0 - error_function(x), abs(x) < vec4<f32>(0.5)), x, is_nan(x));
}

fn inverse_error(x: vec4<f32>) -> vec4<f32> {
    let w = -logarithm((1.0 - x) * (1.0 + x));
    let t = (w - 2.5) * 0.4;
    let middle = ((((((((-3.353522e-5 * t + 3.54502e-5) * t + 2.8452798e-4) * t - 8.453869e-4) * t - 4.8470194e-4) * t
        + 8.52908e-3) * t - 1.9574093e-2) * t - 2.6108667e-2) * t + 6.1660069e-1) * t + 1.5014094;
    let s = (sqrt(w) - 3.168) * 1.0729614;
    let end = (((((((-9.0979396e-5 * s - 8.075578e-5) * s + 8.278004e-4) * s - 1.6507594e-3) * s + 2.4490475e-3) * s
        - 3.7726723e-3) * s + 5.5678524e-3) * s + 9.3600249e-1) * s + 3.0014925;
    let inside = x * select(end, middle, w < vec4<f32>(5.0));
    let edge = select(inside, with_sign(infinity(), x), abs(x) == vec4<f32>(1.0));
    return select(edge, not_a_number(), (abs(x) > vec4<f32>(1.0)) | is_nan(x));
}

// log(gamma(1 + d)) for d from 0 to 1: zero at both ends.
fn log_gamma_between(d: vec4<f32>) -> vec4<f32> {
    let t = (2.0 * d) - 1.0;
    let curve = (((((((9.548987e-6 * t - 3.10611e-5) * t + 8.323129e-5) * t - 2.8984377e-4) * t + 1.050501e-3) * t
        - 3.9149029e-3) * t + 1.5727764e-2) * t - 7.2979845e-2) * t + 4.8312896e-1;
    return d * (d - 1.0) * curve;
}

fn log_gamma_of_positive(x: vec4<f32>) -> vec4<f32> {
    let near = log_gamma_between(clamp(x - floor(x), vec4<f32>(0.0), vec4<f32>(1.0)));
    let one = vec4<f32>(1.0);
    let low = near - logarithm(select(one, x, x < one));
    let high = near + logarithm(select(one, x - 1.0, (x >= vec4<f32>(2.0)) & (x < vec4<f32>(3.0))));
    // Stirling's series, from three on.
    let inverse = 1.0 / x;
    let z = inverse * inverse;
    let series = inverse * (8.3333333e-2 - z * (2.7777778e-3 - z * (7.9365079e-4 - z * 5.952381e-4)));
    let far = ((x - 0.5) * (logarithm(x) - 1.0)) + (0.418938533 + series);
    return select(select(high, low, x < one), far, x >= vec4<f32>(3.0));
}

fn log_gamma(x: vec4<f32>) -> vec4<f32> {
    let zero = vec4<f32>(0.0);
    let below = x < zero;
    let positive = log_gamma_of_positive(select(x, 1.0 - x, below));
    let turn = abs(sine(PI * (x - round(x))));
    let result = select(positive, 1.14472989 - logarithm(turn) - positive, below);
    let pole = (x <= zero) & (floor(x) == x);
    return select(select(result, infinity(), pole | is_infinite(x)), x, is_nan(x));
}

fn digamma(x: vec4<f32>) -> vec4<f32> {
    let zero = vec4<f32>(0.0);
    let below = x < zero;
    var y = select(x, 1.0 - x, below);
    var sum = zero;
    // Up to where the series holds, one over each number on the way.
    for (var step = 0u; step < 6u; step++) {
        let small = y < vec4<f32>(6.0);
        sum = select(sum, sum - 1.0 / y, small);
        y = select(y, y + 1.0, small);
    }
    let z = 1.0 / (y * y);
    let series = z * (8.3333333e-2 - z * (8.3333333e-3 - z * (3.9682540e-3 - z * 4.1666667e-3)));
    let positive = sum + (logarithm(y) - 0.5 / y - series);
        let result = select(positive, positive - PI / tangent(PI * (x - round(x))), below);
    let pole = below & (floor(x) == x);
    let known = select(result, -with_sign(infinity(), x), x == zero);
    return select(select(known, not_a_number(), pole), x, is_nan(x) | (x == infinity()));
}

// The modified Bessel function: near zero its power series, whose terms all add, then by falling powers.
fn bessel(x: vec4<f32>) -> vec4<f32> {
    let a = abs(x);
    let quarter = 0.25 * min(a, vec4<f32>(8.0)) * min(a, vec4<f32>(8.0));
    var near = vec4<f32>(1.0);
    for (var k = 24u; k > 0u; k--) {
        let n = f32(k);
        near = 1.0 + (near * quarter / (n * n));
    }
    let t = (16.0 / max(a, vec4<f32>(8.0))) - 1.0;
    let tail = (((((1.0889478e-7 * t + 3.6202954e-7) * t + 1.4751948e-6) * t + 1.1110041e-5) * t + 1.361935e-4) * t
        + 3.3602468e-3) * t + 4.0217686e-1;
    // In two factors: the exponential alone overflows where the result does not.
    let root = exponential(0.5 * a);
    let far = (root * (tail / sqrt(a))) * root;
    return select(select(far, near, a < vec4<f32>(8.0)), not_a_number(), is_infinite(x) | is_nan(x));
}
