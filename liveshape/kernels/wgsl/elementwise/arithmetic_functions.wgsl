// Quotients, rests and powers, exact where WGSL leaves them to the driver.
// Not a % b: Vulkan leaves the remainder of negative numbers undefined, and NVIDIA's driver makes use of it.
fn whole_rest(a: vec4<i32>, b: vec4<i32>) -> vec4<i32> {
    return a - a / b * b;
}

// Long division of mantissas, eight bits of the quotient at a time: exact, whatever the quotient. A quotient of floats
// has 278 bits at most.
fn float_fmod(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(a) & vec4<u32>(0x7fffffffu);
    let divisor_bits = bitcast<vec4<u32>>(b) & vec4<u32>(0x7fffffffu);
    let exponent = max(bits >> vec4<u32>(23u), vec4<u32>(1u));
    let divisor_exponent = max(divisor_bits >> vec4<u32>(23u), vec4<u32>(1u));
    // A mantissa of nothing would divide by zero: what comes of it is not used.
    let divisor = max(mantissa(divisor_bits), vec4<u32>(1u));
    var left = select(vec4<u32>(0u), exponent - divisor_exponent, exponent > divisor_exponent);
    var rest = mantissa(bits) % divisor;
    for (var step = 0u; step < 35u; step++) {
        if (all(left == vec4<u32>(0u))) {
            break;
        }
        let digits = min(left, vec4<u32>(8u));
        rest = (rest << digits) % divisor;
        left -= digits;
    }
    // Back to where the first bit of a mantissa stands, unless the exponent ends before.
    let shift = min(countLeadingZeros(rest | vec4<u32>(1u)) - vec4<u32>(8u), divisor_exponent - 1u);
    let shifted = rest << shift;
    let above = select(vec4<u32>(0u), divisor_exponent - shift, shifted >= vec4<u32>(0x800000u));
    let whole = bitcast<vec4<f32>>((shifted & vec4<u32>(0x7fffffu)) | (above << vec4<u32>(23u)));
    let infinite = vec4<u32>(0x7f800000u);
    let result = select(whole, bitcast<vec4<f32>>(bits), bits < divisor_bits);
    let undefined = (bits >= infinite) | (divisor_bits > infinite) | (divisor_bits == vec4<u32>(0u));
    return with_sign(select(result, not_a_number(), undefined), a);
}

// With the bit that a float implies, unless it is subnormal.
fn mantissa(bits: vec4<u32>) -> vec4<u32> {
    let implied = select(vec4<u32>(0u), vec4<u32>(0x800000u), bits >= vec4<u32>(0x800000u));
    return (bits & vec4<u32>(0x7fffffu)) | implied;
}

// Whether a rest has another sign than what it was divided by. By bits: a device may take a subnormal rest for zero.
fn is_across(rest: vec4<f32>, b: vec4<f32>) -> vec4<bool> {
    let bits = bitcast<vec4<u32>>(rest);
    let other_sign = ((bits ^ bitcast<vec4<u32>>(b)) >> vec4<u32>(31u)) != vec4<u32>(0u);
    return ((bits << vec4<u32>(1u)) != vec4<u32>(0u)) & other_sign;
}

fn floor_divide(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let zero = vec4<f32>(0.0);
    let rest = float_fmod(a, b);
    let quotient = (a - rest) / b - select(zero, vec4<f32>(1.0), is_across(rest, b));
    let whole = select(round(quotient), with_sign(zero, a / b), quotient == zero);
    return select(whole, a / b, (b == zero) | (is_infinite(a / b) & !is_infinite(a)));
}

fn float_power(base: vec4<f32>, exponent: vec4<f32>) -> vec4<f32> {
    let zero = vec4<f32>(0.0);
    let one = vec4<f32>(1.0);
    let whole = trunc(exponent) == exponent;
    let odd = whole & (abs(exponent) < vec4<f32>(16777216.0)) & (trunc(exponent * 0.5) * 2.0 != exponent);
    var magnitude = exponential(exponent * logarithm(abs(base)));
    // Small whole exponents by multiplication, to the last digits.
    let small = whole & (abs(exponent) < vec4<f32>(64.0));
    if (any(small)) {
        var product = one;
        var factor = abs(base);
        var rest = vec4<u32>(select(zero, abs(exponent), small));
        for (var bit = 0u; bit < 6u; bit++) {
            product = select(product, product * factor, (rest & vec4<u32>(1u)) != vec4<u32>(0u));
            factor = factor * factor;
            rest = rest >> vec4<u32>(1u);
        }
        magnitude = select(magnitude, select(product, 1.0 / product, exponent < zero), small);
    }
    magnitude = select(magnitude, sqrt(abs(base)), exponent == vec4<f32>(0.5));
    magnitude = select(magnitude, one, abs(base) == one);
    let signed = select(magnitude, with_sign(magnitude, base), odd);
    let undefined = (base < zero) & !whole & !is_infinite(base) & !is_infinite(exponent);
    let result = select(signed, not_a_number(), undefined | is_nan(base) | is_nan(exponent));
    return select(result, one, (exponent == zero) | (base == one));
}

fn whole_power(base: vec4<i32>, exponent: vec4<i32>) -> vec4<i32> {
    var product = vec4<i32>(1);
    var factor = base;
    var rest = vec4<u32>(abs(exponent));
    while (any(rest != vec4<u32>(0u))) {
        product = select(product, product * factor, (rest & vec4<u32>(1u)) != vec4<u32>(0u));
        factor = factor * factor;
        rest = rest >> vec4<u32>(1u);
    }
    // One over a whole number is whole only for 1 and -1.
    let unit = abs(base) == vec4<i32>(1);
    return select(product, select(vec4<i32>(0), product, unit), exponent < vec4<i32>(0));
}

// The rest of a division that rounds down, from that of one that cuts.
fn remainder_of(rest: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return select(rest, rest + b, is_across(rest, b));
}

fn logit_of(x: vec4<f32>) -> vec4<f32> {
    return logarithm(x / (1.0 - x));
}

// The same number: no compiler knows that `zero` is none, so it cannot cancel what came before against what follows.
fn hidden_from_algebra(x: vec4<f32>, zero: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4<u32>(zero));
}

// The nearest number that float16 holds, ties to even. By bits: a compiler may skip a conversion there and back.
fn half_rounded(x: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu);
    // Below 2 to the power -14 all steps are 2 to the power -24. By `round`: a compiler may cancel a sum's first term.
    let small = round(bitcast<vec4<f32>>(bits) * 16777216.0) * 5.9604644775390625e-8;
    let nearest = (bits + 0xfffu + ((bits >> vec4<u32>(13u)) & vec4<u32>(1u))) & vec4<u32>(0xffffe000u);
    let large = select(nearest, vec4<u32>(0x7f800000u), nearest >= vec4<u32>(0x47800000u));
    let magnitude = select(bitcast<vec4<f32>>(large), small, bits < vec4<u32>(0x38800000u));
    return select(with_sign(magnitude, x), x, is_nan(x));
}

// The nearest bfloat16, ties to even.
fn bfloat16_rounded(x: vec4<f32>) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(x);
    let nearest = (bits + 0x7fffu + ((bits >> vec4<u32>(16u)) & vec4<u32>(1u))) & vec4<u32>(0xffff0000u);
    return select(bitcast<vec4<f32>>(nearest), x, is_nan(x));
}
