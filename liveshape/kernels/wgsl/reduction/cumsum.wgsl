// The running total, or product, along lines of elements that lie `inner` apart, in the wide type of the output: a thread
// per part of a line, which is all of a short one. Of long lines the TOTALS of parts come first, whose own running totals
// are then CARRIED into the parts. A sum keeps what its additions round away (Kahan, Neumaier): every element of the
// result shows that, and torch adds up in float64. Totals are PAIRS of a sum and of what it lacks.
#choice STAGE: whole, totals, carried
#choice OF: elements, pairs
#choice STORES: elements, pairs
// TCarry: f32, i32
override WG: u32 = 64;
override PRODUCT: bool = false;

struct Params {
    count: u32,
    length: u32,
    inner: u32,
    parts: u32, // of a line
    share: u32,
    zero: u32, // which no compiler knows
}
#if STORES == pairs
@group(0) @binding(0) var<storage, read_write> out: array<vec2<TOut>>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
#endif
#if OF == pairs
@group(0) @binding(1) var<storage, read> x: array<vec2<TOut>>;
#else
@group(0) @binding(1) var<storage, read> x: array<TIn>;
#endif
#if STAGE == carried
@group(0) @binding(2) var<storage, read> carries: array<vec2<TCarry>>;
#endif

fn identity() -> TOut_math {
    return select(TOut_math(0), TOut_math(1), PRODUCT);
}

// The same number, of which no compiler knows what it was made of: it would cancel what was rounded away.
fn opaque(value: TOut_math) -> TOut_math {
    return bitcast<TOut_math>(bitcast<u32>(value) ^ params.zero);
}

// What a + b has lost where that is `sum`; nothing where it is no number.
fn lost(a: TOut_math, b: TOut_math, sum: TOut_math) -> TOut_math {
    let added = opaque(sum - a);
    let kept = opaque(sum - added);
    let rest = opaque(a - kept) + opaque(b - added);
    return select(TOut_math(0), rest, opaque(sum - sum) == TOut_math(0));
}

fn pair_at(i: u32) -> vec2<TOut_math> {
#if OF == pairs
    return vec2<TOut_math>(x[i]);
#else
    return vec2<TOut_math>(TOut_math(x[i]), TOut_math(0));
#endif
}

fn store(i: u32, total: TOut_math, missing: TOut_math) {
#if STORES == pairs
    out[i] = vec2<TOut>(TOut(total), TOut(missing));
#else
    out[i] = TOut(total + missing);
#endif
}

fn each(i: u32) {
    let line = i / params.inner / params.parts;
    let start = line * params.length * params.inner + i % params.inner;
    let first = i / params.inner % params.parts * params.share;
    let last = min(first + params.share, params.length);
    var total = identity();
    var missing = TOut_math(0);
#if STAGE == carried
    if (first > 0u) {
        let carry = vec2<TOut_math>(carries[i - params.inner]);
        total = carry.x;
        missing = carry.y;
    }
#endif
    for (var j = first; j < last; j++) {
        let value = pair_at(start + j * params.inner);
        if (PRODUCT) {
            total *= value.x;
        } else {
            let sum = opaque(total + value.x);
            missing += lost(total, value.x, sum) + value.y;
            total = sum;
        }
#if STAGE != totals
        store(start + j * params.inner, total, missing);
#endif
    }
#if STAGE == totals
    store(i, total, missing);
#endif
}

#include common/each
