// out[unit] = the maximum (or MINIMUM) of x in the unit, or its INDEX; the first of equals.
// Elements compare by a key of 32 bits, in which a NaN is above every number whichever end is asked for.
// T: f32, f16, i32, u32
override WG: u32 = 256;
override SUBGROUP: u32 = 0;
override MINIMUM: bool = false;
override INDEX: bool = false;

struct Params {
    units: u32,
    count: u32,
    kept_rank: u32,
    reduced_rank: u32,
    sizes: array<vec4<u32>, 4>,
    strides: array<vec4<u32>, 4>,
}
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<uniform> params: Params;

alias Total = vec2<u32>; // (key, index)

fn combine(a: Total, b: Total) -> Total {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

#include common/element_keys
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
    var best = Total(0u, 0xffffffffu);
    for (var j = member_of(thread); j < params.count; j += COOPERATING) {
        best = combine(best, Total(extreme_key(T_math(x[start + walk(j)]), MINIMUM), j));
    }
    best = reduce_unit(thread, best);
    if (unit < params.units && member_of(thread) == 0u) {
        if (INDEX) {
            out[unit] = TOut(best.y);
        } else {
            out[unit] = TOut(x[start + walk(best.y)]);
        }
    }
}
