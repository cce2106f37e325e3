// out[unit] = the maximum (or MINIMUM) of x in the unit, or its INDEX; the first of equals.
// Elements compare by a key of 32 bits, in which a NaN is above every number whichever end is asked for. In stages,
// parts of the units become keys with their indices, and so do parts of these KEYS.
// composable x: an element is loaded by one thread, once, or twice for a variance.
// composable: the result of a unit is stored once.
#choice FROM: elements, keys
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
#if STAGE == parts
    span: u32,
    parts: u32,
#endif
#if FROM == keys
    keys: u32, // of a unit
#endif
}
#if STAGE == parts
@group(0) @binding(0) var<storage, read_write> out: array<vec2<i32>>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
#endif
#if FROM == elements
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<uniform> params: Params;
#elif STAGE == parts
@group(0) @binding(1) var<storage, read> keys: array<vec2<i32>>;
@group(0) @binding(2) var<uniform> params: Params;
#else
@group(0) @binding(1) var<storage, read> keys: array<vec2<i32>>;
@group(0) @binding(2) var<storage, read> x: array<T>;
@group(0) @binding(3) var<uniform> params: Params;
#endif

alias Total = vec2<u32>; // (key, index)

fn combine(a: Total, b: Total) -> Total {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

#include reduction/across_threads
#include reduction/parts
#include reduction/reduced_walk
#if FROM == elements
#include common/element_keys

fn count() -> u32 {
    return params.count;
}

fn begin_of(unit: u32) -> u32 {
    return start_of(unit);
}

fn total_at(begin: u32, j: u32) -> Total {
    return Total(extreme_key(T_math(x[begin + walk(j)]), MINIMUM), j);
}
#else
fn count() -> u32 {
    return params.keys;
}

fn begin_of(unit: u32) -> u32 {
    return unit;
}

fn total_at(begin: u32, j: u32) -> Total {
    return bitcast<Total>(keys[begin + j * params.units]);
}
#endif

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = unit_of(group_index(group, grid), thread);
    let part = part_of(unit, params.units, count());
    let begin = begin_of(part.unit);
    var best = Total(0u, 0xffffffffu);
    for (var j = part.first + member_of(thread); j < part.last; j += COOPERATING) {
        best = combine(best, total_at(begin, j));
    }
    best = reduce_unit(thread, best);
#if STAGE == parts
    if (unit < params.units * params.parts && member_of(thread) == 0u) {
        out[unit] = bitcast<vec2<i32>>(best);
    }
#else
    if (unit < params.units && member_of(thread) == 0u) {
        if (INDEX) {
            out[unit] = TOut(best.y);
        } else {
            out[unit] = TOut(x[start_of(part.unit) + walk(best.y)]);
        }
    }
#endif
}
