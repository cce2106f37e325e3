// The functions of one tensor. `numbers` are a function's own constants: bounds, a slope, a scale.
const IDENTITY: u32 = 0u;
const ABS: u32 = 1u;
const NEG: u32 = 2u;
const SIGN: u32 = 3u;
const SQUARE: u32 = 4u;
const RECIPROCAL: u32 = 5u;
const SQRT: u32 = 6u;
const RSQRT: u32 = 7u;
const EXP: u32 = 8u;
const EXPM1: u32 = 9u;
const LOG: u32 = 10u;
const LOG2: u32 = 11u;
const LOG10: u32 = 12u;
const LOG1P: u32 = 13u;
const SIN: u32 = 14u;
const COS: u32 = 15u;
const TAN: u32 = 16u;
const ASIN: u32 = 17u;
const ACOS: u32 = 18u;
const ATAN: u32 = 19u;
const SINH: u32 = 20u;
const COSH: u32 = 21u;
const TANH: u32 = 22u;
const ASINH: u32 = 23u;
const ACOSH: u32 = 24u;
const ATANH: u32 = 25u;
const ERF: u32 = 26u;
const SIGMOID: u32 = 27u;
const LOGIT: u32 = 28u;
const ROUND: u32 = 29u;
const FLOOR: u32 = 30u;
const CEIL: u32 = 31u;
const TRUNC: u32 = 32u;
const ISNAN: u32 = 33u;
const ISINF: u32 = 34u;
const CLAMP: u32 = 35u;
const HARDSWISH: u32 = 36u;
const HARDSIGMOID: u32 = 37u;
const HARDSHRINK: u32 = 38u;
const LEAKY_RELU: u32 = 39u;
const ELU: u32 = 40u;
const GELU: u32 = 41u;
const GELU_TANH: u32 = 42u;
const SILU: u32 = 43u;
const BITWISE_NOT: u32 = 44u;
const ROUND_DIGITS: u32 = 45u;
const ROUND_TENS: u32 = 46u;
const ANGLE: u32 = 47u;
const SIGNBIT: u32 = 48u;

fn of_floats(x: vec4<f32>, numbers: vec4<f32>) -> vec4<f32> {
    let zero = vec4<f32>(0.0);
    let one = vec4<f32>(1.0);
    switch (OP) {
        case ABS: { return abs(x); }
        case NEG: { return -x; }
        case SIGN: { return flags(x > zero) - flags(x < zero); }
        case SQUARE: { return x * x; }
        case RECIPROCAL: { return 1.0 / x; }
        case SQRT: { return sqrt(x); }
        case RSQRT: { return 1.0 / sqrt(x); }
        case EXP: { return exponential(x); }
        case EXPM1: { return exponential_minus_one(x); }
        case LOG: { return logarithm(x); }
        case LOG2: { return logarithm(x) * 1.44269504; }
        case LOG10: { return logarithm(x) * 0.434294482; }
        case LOG1P: { return log_one_plus(x); }
        case SIN: { return sine(x); }
        case COS: { return cosine(x); }
        case TAN: { return tangent(x); }
        case ASIN: { return arc_sine(x); }
        case ACOS: { return arc_cosine(x); }
        case ATAN: { return arc_tangent(x); }
        case SINH: { return hyperbolic_sine(x); }
        case COSH: { return hyperbolic_cosine(x); }
        case TANH: { return hyperbolic_tangent(x); }
        case ASINH: { return inverse_hyperbolic_sine(x); }
        case ACOSH: { return inverse_hyperbolic_cosine(x); }
        case ATANH: { return with_sign(0.5 * log_one_plus(2.0 * abs(x) / (1.0 - abs(x))), x); }
        case ERF: { return error_function(x); }
        case ANGLE: { return select(select(zero, vec4<f32>(3.14159265), x < zero), x, is_nan(x)); }
        case SIGMOID: { return 1.0 / (1.0 + exponential(-x)); }
        case LOGIT: {
            let inside = select(clamp(x, numbers.xxxx, 1.0 - numbers.xxxx), x, is_nan(x) | (numbers.xxxx < zero));
            return logarithm(inside / (1.0 - inside));
        }
        case ROUND: { return round(x); }
        case ROUND_DIGITS: { return round(x * numbers.x) / numbers.x; }
        case ROUND_TENS: { return round(x / numbers.x) * numbers.x; }
        case FLOOR: { return floor(x); }
        case CEIL: { return ceil(x); }
        case TRUNC: { return trunc(x); }
        case ISNAN: { return flags(is_nan(x)); }
        case ISINF: { return flags(is_infinite(x)); }
        case SIGNBIT: { return flags((bitcast<vec4<u32>>(x) & vec4<u32>(0x80000000u)) != vec4<u32>(0u)); }
        case CLAMP: { return select(min(max(x, numbers.xxxx), numbers.yyyy), x, is_nan(x)); }
        case HARDSWISH: { return x * clamp(x + 3.0, zero, vec4<f32>(6.0)) / 6.0; }
        case HARDSIGMOID: { return select(clamp(x + 3.0, zero, vec4<f32>(6.0)) / 6.0, x, is_nan(x)); }
        case HARDSHRINK: { return select(x, zero, (x >= -numbers.xxxx) & (x <= numbers.xxxx)); }
        case LEAKY_RELU: { return select(x * numbers.x, x, x > zero); }
        case ELU: {
            let curve = exponential_minus_one(x * numbers.z) * numbers.x;
            return numbers.y * select(curve, x, x > zero);
        }
        case GELU: { return 0.5 * x * (1.0 + error_function(x * 0.707106781)); }
        case GELU_TANH: {
            return 0.5 * x * (1.0 + hyperbolic_tangent(0.797884561 * (x + 0.044715 * x * x * x)));
        }
        case SILU: { return x / (1.0 + exponential(-x)); }
        default: { return x; }
    }
}

fn of_wholes(x: vec4<i32>, bounds: vec2<i32>) -> vec4<i32> {
    let zero = vec4<i32>(0);
    switch (OP) {
        case ABS: { return abs(x); }
        case NEG: { return -x; }
        case SIGN: { return vec4<i32>(flags(x > zero)) - vec4<i32>(flags(x < zero)); }
        case SQUARE: { return x * x; }
        case SIGNBIT: { return vec4<i32>(flags(x < zero)); }
        case CLAMP: { return min(max(x, bounds.xxxx), bounds.yyyy); }
        case BITWISE_NOT: { return ~x; }
        case ISNAN, ISINF: { return zero; }
        default: { return x; } // rounding changes no whole number
    }
}
