// 4-bit GEMV of one row of floats, bound by reading the weight: a unit is four columns, and UNIT_THREADS threads split
// its depth.
// subgroups up to 128 threads: more shuffle so much that memory is faster.
// T: f32, f16
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 256;
override SUBGROUP: u32 = 0;
override PREFETCHED: u32 = 1; // eights of a column that a thread loads before it waits for the first: 1 or 4
override VECTOR_LOADS: bool = false; // whether these are 32 neighbours of one group or of two, loaded as vectors

alias Total = vec4<f32>; // the sums of four columns

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

#include common/multiply_add
#include reduction/across_threads
#include q4/float_operands
#include q4/row
#include q4/epilogue
#include q4/residual_prefetch
#include q4/float_columns

fn plus(sums: vec4<f32>, eight: Eight, column: u32) -> vec4<f32> {
    return plus_row(sums, numbers_of(eight, column), 0u);
}

// What a thread prefetches.
struct Prefetched {
    first: Eight,
    second: Eight,
    third: Eight,
    fourth: Eight,
}

struct Vectors {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
}

fn vectors(columns: vec4<u32>, k: u32, behind: u32) -> Vectors {
    let at = (columns * params.column_bytes + k / 8u * BITS) / 16u + behind;
    return Vectors(weight[at.x], weight[at.y], weight[at.z], weight[at.w]);
}

fn words_from(given: Vectors, n: u32) -> vec4<u32> {
    return vec4<u32>(given.a[n], given.b[n], given.c[n], given.d[n]);
}

fn neighbours(columns: vec4<u32>, k: u32) -> Prefetched {
    let scale = scale_four(columns.x, k);
    let minimum = minimum_four(columns.x, k);
    var upper_scale = scale;
    var upper_minimum = minimum;
    if (GROUP % 32u != 0u) {
        upper_scale = scale_four(columns.x, k + 16u);
        upper_minimum = minimum_four(columns.x, k + 16u);
    }
    let low = vectors(columns, k, 0u);
    if (BITS == 8u) {
        let high = vectors(columns, k, 1u);
        return Prefetched(
            Eight(words_from(low, 0u), words_from(low, 1u), scale, minimum, k),
            Eight(words_from(low, 2u), words_from(low, 3u), scale, minimum, k + 8u),
            Eight(words_from(high, 0u), words_from(high, 1u), upper_scale, upper_minimum, k + 16u),
            Eight(words_from(high, 2u), words_from(high, 3u), upper_scale, upper_minimum, k + 24u),
        );
    }
    return Prefetched(
        Eight(words_from(low, 0u), vec4<u32>(), scale, minimum, k),
        Eight(words_from(low, 1u), vec4<u32>(), scale, minimum, k + 8u),
        Eight(words_from(low, 2u), vec4<u32>(), upper_scale, upper_minimum, k + 16u),
        Eight(words_from(low, 3u), vec4<u32>(), upper_scale, upper_minimum, k + 24u),
    );
}

fn prefetch(columns: vec4<u32>, i: u32) -> Prefetched {
    if (VECTOR_LOADS) {
        return neighbours(columns, i * 8u);
    }
    let first = fetch(columns, i);
    if (PREFETCHED == 4u) {
        return Prefetched(
            first,
            fetch(columns, i + COOPERATING),
            fetch(columns, i + 2u * COOPERATING),
            fetch(columns, i + 3u * COOPERATING)
        );
    }
    return Prefetched(first, first, first, first);
}

fn plus_prefetched(sums: vec4<f32>, prefetched: Prefetched, column: u32) -> vec4<f32> {
    let result = plus(sums, prefetched.first, column);
    if (PREFETCHED == 4u) {
        return plus(plus(plus(result, prefetched.second, column), prefetched.third, column), prefetched.fourth, column);
    }
    return result;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = unit_of(group_index(group, grid), thread);
    let last = params.columns - 1u;
    let column = min(unit * 4u, last);
    let columns = vec4<u32>(column, min(column + 1u, last), min(column + 2u, last), min(column + 3u, last));
    let member = member_of(thread);
    var sums = Total();
    // There are fewer threads than words, so that each has a first load; it is in flight while the row is loaded.
    var i = member * select(1u, PREFETCHED, VECTOR_LOADS);
    var prefetched = prefetch(columns, i);
    if (member == 0u) {
        prefetch_residual(0u, column);
    }
    load_row(thread);
    loop {
        sums = plus_prefetched(sums, prefetched, column);
        i += COOPERATING * PREFETCHED;
        if (i * 8u >= params.depth) {
            break;
        }
        prefetched = prefetch(columns, i);
    }
    let total = reduce_unit(thread, sums);
    if (member == 0u && unit * 4u < params.columns) {
        store_prefetched(0u, unit * 4u, scaled(total));
    }
}
