// out[unit] = what an OP makes of the elements of x that the unit keeps together; or the extreme among them, or its INDEX,
// of equals the first. Long units go in two stages: what their PARTS carry, or the sums of the SQUARES of what elements are
// above `means`, then RESULTS of these.
// composable x: an element is loaded by one thread, once, or twice for a variance.
// composable: the result of a unit is stored once.
#choice CARRY: number, extreme
#choice STAGE: whole, parts, squares, results
#choice ELEMENTS: real, complex
// TIn: f32, f16, i32, u32
// TOut: f32, f16, i32, u32
override WG: u32 = 256;
override SUBGROUP: u32 = 0;

struct Params {
    units: u32,
    count: u32, // elements of a unit, or partials
    parts: u32,
    share: u32,
    divisor: f32,
    kept_rank: u32,
    reduced_rank: u32,
    sizes: array<vec4<u32>, 4>,
    strides: array<vec4<u32>, 4>,
}

#include reduction/reduced_walk

fn place_of(begin: u32, j: u32) -> u32 {
#if STAGE == results
    return begin + j * params.units;
#else
    return begin + walk(j);
#endif
}

#if CARRY == number
#if ELEMENTS == complex
// Both parts of complex numbers, each by itself.
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
alias TIn = f32;
alias TOut = f32;
alias TOut_math = f32;
#else
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> x: array<TIn>;
#endif
#if STAGE == squares
@group(0) @binding(2) var<storage, read> means: array<f32>;
#endif

alias Total = TOut_math;
alias Element = TIn;
alias Bits = u32;

var<private> mean: Total;
var<private> squares: bool; // the second pass of a variance, of what elements are above the mean

fn total_at(begin: u32, j: u32) -> Total {
    let value = total_of(x[place_of(begin, j)]);
    if (OP == VARIANCE && squares) {
        return (value - mean) * (value - mean);
    }
    return value;
}

#include reduction/block
#include reduction/operations
#else
#if STAGE == parts
@group(0) @binding(0) var<storage, read_write> out: array<vec2<i32>>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
#endif
#if STAGE == results
@group(0) @binding(1) var<storage, read> keys: array<vec2<i32>>;
#endif
@group(0) @binding(2) var<storage, read> x: array<TIn>;
override MINIMUM: bool = false;
override INDEX: bool = false;

const BLOCK: u32 = 1u << 20u; // one: no rounding errors grow
alias Total = vec2<u32>; // a key of 32 bits, in which a NaN is above every number whichever end is asked for; the index

fn identity() -> Total {
    return Total(0u, 0xffffffffu);
}

fn combine(a: Total, b: Total) -> Total {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

fn total_at(begin: u32, j: u32) -> Total {
#if STAGE == results
    return bitcast<Total>(keys[place_of(begin, j)]);
#else
    return Total(extreme_key(T_math(x[place_of(begin, j)]), MINIMUM), j);
#endif
}

alias T_math = TIn_math;
#include common/element_keys
#endif
#include reduction/own_total

fn each_part(part: Part, thread: u32) {
#if STAGE == results
    let begin = part.unit;
#else
    let begin = start_of(part.unit);
#endif
#if STAGE == squares
    mean = means[part.unit];
    squares = true;
#endif
    var total = reduce_unit(thread, own_total(part, thread, begin));
#if CARRY == number
#if STAGE == whole
    if (OP == VARIANCE) {
        mean = total / Total(params.count);
        squares = true;
        total = reduce_unit(thread, own_total(part, thread, begin));
    }
#endif
    if (OP == MEAN || OP == VARIANCE) {
        total = total / Total(params.divisor);
    }
#endif
    if (!is_part(part) || member_of(thread) > 0u) {
        return;
    }
#if CARRY == number
    out[part.index] = TOut(total);
#elif STAGE == parts
    out[part.index] = bitcast<vec2<i32>>(total);
#else
    if (INDEX) {
        out[part.index] = TOut(total.y);
    } else {
        out[part.index] = TOut(x[start_of(part.unit) + walk(total.y)]);
    }
#endif
}
