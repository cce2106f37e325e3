// out[i] = a random number: a function of the stream, the call and i, so that nothing has to be kept.
override WG: u32 = 64;
override OP: u32 = UNIFORM;

const UNIFORM = 0u; // from zero up to one
const NORMAL = 1u;
const FLAG = 2u; // one with a chance of `high`, else zero
const INTEGER = 3u; // from `low` up to `low` + `span`

struct Params {
    count: u32,
    stream: u32,
    call: u32,
    bits: u32, // of a fraction
    low: i32,
    span: u32,
    high: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;

#include elementwise/random

fn drawn(place: u32) -> u32 {
    return random(vec3<u32>(params.stream, params.call, place));
}

fn fraction(place: u32) -> f32 {
    return f32(drawn(place) >> (32u - params.bits)) / f32(1u << params.bits);
}

fn each(i: u32) {
    if (OP == UNIFORM) {
        out[i] = T(fraction(i));
    } else if (OP == NORMAL) {
        // Box and Muller: the distance from 0, of which the logarithm would be infinite, and the angle.
        let distance = sqrt(-2.0 * log(1.0 - fraction(2u * i)));
        out[i] = T(distance * cos(6.28318531 * fraction(2u * i + 1u)));
    } else if (OP == FLAG) {
        out[i] = select(T(0), T(1), fraction(i) < params.high);
    } else if (params.span == 0u) {
        out[i] = T(bitcast<i32>(drawn(i))); // all 32 bits
    } else {
        out[i] = T(params.low + i32(drawn(i) % params.span));
    }
}

#include common/each_in_runs
