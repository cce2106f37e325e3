// The functions of two operands, in floats and in whole numbers. Flags are 1 or 0, alpha belongs to ADD and SUB.
const ADD: u32 = 0u;
const SUB: u32 = 1u;
const MUL: u32 = 2u;
const DIV: u32 = 3u;
const FLOOR_DIVIDE: u32 = 4u;
const TRUNC_DIVIDE: u32 = 5u;
const REMAINDER: u32 = 6u;
const FMOD: u32 = 7u;
const MINIMUM: u32 = 8u;
const MAXIMUM: u32 = 9u;
const POWER: u32 = 10u;
const ATAN2: u32 = 11u;
const EQUAL: u32 = 12u;
const NOT_EQUAL: u32 = 13u;
const LESS: u32 = 14u;
const LESS_EQUAL: u32 = 15u;
const GREATER: u32 = 16u;
const GREATER_EQUAL: u32 = 17u;
const LOGICAL_AND: u32 = 18u;
const LOGICAL_OR: u32 = 19u;
const LOGICAL_XOR: u32 = 20u;
const BITWISE_AND: u32 = 21u;
const BITWISE_OR: u32 = 22u;
const BITWISE_XOR: u32 = 23u;
const LEFT_SHIFT: u32 = 24u;
const RIGHT_SHIFT: u32 = 25u;
const HYPOT: u32 = 26u;
const COPYSIGN: u32 = 27u;

// Never a != b on floats: what naga makes of it is false where either is NaN.
fn of_floats(a: vec4<f32>, b: vec4<f32>, alpha: f32) -> vec4<f32> {
    let zero = vec4<f32>(0.0);
    switch (OP) {
        case ADD: { return a + alpha * b; }
        case SUB: { return a - alpha * b; }
        case MUL: { return a * b; }
        case DIV: { return a / b; }
        case FLOOR_DIVIDE: { return floor_divide(a, b); }
        case TRUNC_DIVIDE: { return trunc(a / b); }
        case REMAINDER: {
            let rest = float_fmod(a, b);
            return select(rest, rest + b, is_across(rest, b));
        }
        case FMOD: { return float_fmod(a, b); }
        case MINIMUM: { return select(min(a, b), a + b, is_nan(a) | is_nan(b)); }
        case MAXIMUM: { return select(max(a, b), a + b, is_nan(a) | is_nan(b)); }
        case POWER: { return float_power(a, b); }
        case ATAN2: { return arc_tangent_of_two(a, b); }
        case HYPOT: { return hypotenuse(a, b); }
        case COPYSIGN: { return with_sign(a, b); }
        case EQUAL: { return flags(a == b); }
        case NOT_EQUAL: { return flags(!(a == b)); }
        case LESS: { return flags(a < b); }
        case LESS_EQUAL: { return flags(a <= b); }
        case GREATER: { return flags(a > b); }
        case GREATER_EQUAL: { return flags(a >= b); }
        case LOGICAL_AND: { return flags(!((a == zero) | (b == zero))); }
        case LOGICAL_OR: { return flags(!((a == zero) & (b == zero))); }
        case LOGICAL_XOR: { return flags((a == zero) != (b == zero)); }
        default: { return zero; }
    }
}

// Not a % b: Vulkan leaves the remainder of negative numbers undefined, and NVIDIA's driver makes use of it.
fn whole_rest(a: vec4<i32>, b: vec4<i32>) -> vec4<i32> {
    return a - a / b * b;
}

fn of_wholes(a: vec4<i32>, b: vec4<i32>, alpha: i32) -> vec4<i32> {
    let zero = vec4<i32>(0);
    switch (OP) {
        case ADD: { return a + alpha * b; }
        case SUB: { return a - alpha * b; }
        case MUL: { return a * b; }
        case DIV, TRUNC_DIVIDE: { return a / b; }
        case FLOOR_DIVIDE: {
            return a / b - select(zero, vec4<i32>(1), (whole_rest(a, b) != zero) & ((a < zero) != (b < zero)));
        }
        case REMAINDER: {
            let rest = whole_rest(a, b);
            return select(rest, rest + b, (rest != zero) & ((rest < zero) != (b < zero)));
        }
        case FMOD: { return whole_rest(a, b); }
        case MINIMUM: { return min(a, b); }
        case MAXIMUM: { return max(a, b); }
        case POWER: { return whole_power(a, b); }
        case EQUAL: { return vec4<i32>(flags(a == b)); }
        case NOT_EQUAL: { return vec4<i32>(flags(a != b)); }
        case LESS: { return vec4<i32>(flags(a < b)); }
        case LESS_EQUAL: { return vec4<i32>(flags(a <= b)); }
        case GREATER: { return vec4<i32>(flags(a > b)); }
        case GREATER_EQUAL: { return vec4<i32>(flags(a >= b)); }
        case LOGICAL_AND: { return vec4<i32>(flags((a != zero) & (b != zero))); }
        case LOGICAL_OR: { return vec4<i32>(flags((a != zero) | (b != zero))); }
        case LOGICAL_XOR: { return vec4<i32>(flags((a != zero) != (b != zero))); }
        case BITWISE_AND: { return a & b; }
        case BITWISE_OR: { return a | b; }
        case BITWISE_XOR: { return a ^ b; }
        // Beyond the bits that there are, and by a negative number, all are shifted out.
        case LEFT_SHIFT: { return select(a << (vec4<u32>(b) & vec4<u32>(31u)), zero, vec4<u32>(b) > vec4<u32>(31u)); }
        case RIGHT_SHIFT: { return a >> min(vec4<u32>(b), vec4<u32>(31u)); }
        default: { return zero; }
    }
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
