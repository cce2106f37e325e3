// out[unit] = the sum, mean, product, any, all or variance of the elements of x that the unit keeps together; or in
// parts of it, as reduction/parts.wgsl has them, also the sum of squares of what is left of `means`.
// composable x: an element is loaded by one thread, once, or twice for a variance.
// composable: the result of a unit is stored once.
#choice ELEMENTS: real, complex
#choice VALUES: elements, squares
// TIn: f32, f16, i32, u32
// TOut: f32, f16, i32, u32
override WG: u32 = 256;
override SUBGROUP: u32 = 0;

struct Params {
    units: u32,
    count: u32,
    divisor: f32,
    kept_rank: u32,
    reduced_rank: u32,
    sizes: array<vec4<u32>, 4>,
    strides: array<vec4<u32>, 4>,
#if STAGE == parts
    span: u32,
    parts: u32,
#endif
}
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
#if VALUES == squares
@group(0) @binding(2) var<storage, read> means: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;
#else
@group(0) @binding(2) var<uniform> params: Params;
#endif

alias Total = TOut_math;
alias Element = TIn;
alias Bits = u32;

#include reduction/operations
#include reduction/across_threads
#include reduction/parts
#include reduction/reduced_walk

// What the thread has of a part: of its elements, or of the squares of what they are above the mean.
fn own_total(part: Part, thread: u32, squares: bool, mean: Total) -> Total {
    let start = start_of(part.unit);
    var total = identity();
    for (var first = part.first + member_of(thread); first < part.last; first += BLOCK * COOPERATING) {
        var block = identity();
        for (var j = first; j < min(first + BLOCK * COOPERATING, part.last); j += COOPERATING) {
            let value = total_of(x[start + walk(j)]);
            if (squares) {
                let difference = value - mean;
                block += difference * difference;
            } else {
                block = combine(block, value);
            }
        }
        total = combine(total, block);
    }
    return total;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = unit_of(group_index(group, grid), thread);
    let part = part_of(unit, params.units, params.count);
#if STAGE == parts
#if VALUES == squares
    let total = reduce_unit(thread, own_total(part, thread, true, means[part.unit]));
#else
    let total = reduce_unit(thread, own_total(part, thread, false, Total(0)));
#endif
    if (unit < params.units * params.parts && member_of(thread) == 0u) {
        out[unit] = TOut(total);
    }
#else
    var total = reduce_unit(thread, own_total(part, thread, false, Total(0)));
    if (OP == VARIANCE) {
        total = reduce_unit(thread, own_total(part, thread, true, total / Total(params.count)));
    }
    if (OP == MEAN || OP == VARIANCE) {
        total = total / Total(params.divisor);
    }
    if (unit < params.units && member_of(thread) == 0u) {
        out[unit] = TOut(total);
    }
#endif
}
