// out[unit] = the sum, mean, product, any, all or variance of the elements of x that the unit keeps together.
#choice ELEMENTS: real, complex
// TIn: f32, f16, i32, u32
// TOut: f32, f16, i32, u32
override WG: u32 = 256;
override SUBGROUP: u32 = 0;
override OP: u32 = 0;

const SUM = 0u;
const MEAN = 1u;
const PRODUCT = 2u;
const ANY = 3u;
const ALL = 4u;
const VARIANCE = 5u;

struct Params {
    units: u32,
    count: u32,
    divisor: f32,
    kept_rank: u32,
    reduced_rank: u32,
    sizes: array<vec4<u32>, 4>,
    strides: array<vec4<u32>, 4>,
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
@group(0) @binding(2) var<uniform> params: Params;

alias Total = TOut_math;

fn combine(a: Total, b: Total) -> Total {
    if (OP == PRODUCT || OP == ALL) {
        return a * b;
    }
    if (OP == ANY) {
        return max(a, b);
    }
    return a + b;
}

fn element(i: u32) -> Total {
    let value = x[i];
    if (OP == ANY || OP == ALL) {
        return select(Total(1), Total(0), value == TIn(0)); // a NaN equals nothing, so it counts as true
    }
    return Total(value);
}

#include reduction/across_threads
#include reduction/reduced_walk

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = unit_of(group_index(group, grid), thread);
    let start = start_of(min(unit, params.units - 1u));
    var total = select(Total(0), Total(1), OP == PRODUCT || OP == ALL);
    for (var j = member_of(thread); j < params.count; j += COOPERATING) {
        total = combine(total, element(start + walk(j)));
    }
    total = reduce_unit(thread, total);
    if (OP == VARIANCE) {
        let mean = total / Total(params.count);
        var squares = Total(0);
        for (var j = member_of(thread); j < params.count; j += COOPERATING) {
            let difference = element(start + walk(j)) - mean;
            squares += difference * difference;
        }
        total = reduce_unit(thread, squares);
    }
    if (OP == MEAN || OP == VARIANCE) {
        total = total / Total(params.divisor);
    }
    if (unit < params.units && member_of(thread) == 0u) {
        out[unit] = TOut(total);
    }
}
