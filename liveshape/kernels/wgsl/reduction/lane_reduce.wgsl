// out[unit] = the sum, mean, product, any, all, maximum or minimum of the elements of x that the unit keeps together, for a device with few
// threads, whose barriers and scalar loads are expensive: a thread reduces a part of `span` of a unit by itself, in
// vectors of neighbours, which are elements of the unit or units of their own. Parts of all units lie side by side.
// composable x: an element is loaded by one thread, once, or twice for a variance.
// composable: the result of a unit is stored once.
#choice NEIGHBOURS: elements, units
#choice WIDTH: four, one
// TIn: f32, f16, i32, u32
// TOut: f32, f16, i32, u32
override WG: u32 = 64;

struct Params {
    count: u32, // threads
    unit_threads: u32, // of one part
    length: u32, // of a unit, in turns of a thread
    span: u32,
    run: u32, // elements of the innermost dimension that is reduced
    step: u32, // and how far apart they are
    divisor: f32,
    kept_rank: u32,
    reduced_rank: u32, // of the other dimensions
    sizes: array<vec4<u32>, 4>,
    strides: array<vec4<u32>, 4>,
}
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
#if WIDTH == four
@group(0) @binding(1) var<storage, read> x: array<vec4<TIn>>;
alias Total = vec4<TOut_math>;
alias Element = vec4<TIn>;
alias Bits = vec4<u32>;
const LANES: u32 = 4u;
#else
@group(0) @binding(1) var<storage, read> x: array<TIn>;
alias Total = TOut_math;
alias Element = TIn;
alias Bits = u32;
const LANES: u32 = 1u;
#endif

#include reduction/operations
#include reduction/block
#include reduction/reduced_walk

fn store(i: u32, total: TOut_math) {
    out[i] = TOut(select(total, total / TOut_math(params.divisor), OP == MEAN));
}

fn each(i: u32) {
    let begin = start_of(i % params.unit_threads);
    let first = i / params.unit_threads * params.span;
    let last = min(first + params.span, params.length);
    var total = identity();
    var j = first;
    while (j < last) {
        let within = j % params.run;
        var place = begin + walk(j / params.run) + within * params.step;
        // Not counted from zero: compilers would unroll it.
        let end = min(min(j + params.run - within, last), j + BLOCK);
        let begins = EXTREMUM && j == first;
        var block = identity();
        if (EXTREMUM) {
            block = total_of(x[place]); // which counts twice, for lack of an identity
        }
        for (; j < end; j++) {
            block = combine(block, total_of(x[place]));
            place += params.step;
        }
        if (begins) {
            total = block;
        } else {
            total = combine(total, block);
        }
    }
#if WIDTH == one
    store(i, total);
#elif NEIGHBOURS == elements
    let pairs = combine(total, total.zwxy);
    store(i, combine(pairs, pairs.yxwz).x);
#else
    for (var lane = 0u; lane < LANES; lane++) {
        store(i * LANES + lane, total[lane]);
    }
#endif
}

#include common/each
