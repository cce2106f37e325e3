// 4-bit GEMV of one row, of floats or quantized, bound by reading the weight: a unit is four columns, and UNIT_THREADS
// threads split its depth. The first weights are prefetched while the row is loaded.
#choice OPERANDS: floats, int8
override WG: u32 = 256;
override SUBGROUP: u32 = 0;

const PLACES: u32 = GROUP_UNITS;

#include reduction/across_threads
#if OPERANDS == floats
// subgroups up to 128 threads: more shuffle so much that memory is faster.
override PREFETCHED: u32 = 1; // eights of a column that a thread loads before it waits for the first: 1 or 4
override VECTOR_LOADS: bool = false; // whether these are 32 neighbours of one group or of two, loaded as vectors

#include common/multiply_add
#include q4/float_operands
#include q4/row
#include q4/float_columns
#else
// unchecked: columns and groups are held below the sizes that planning checked.
#include q4/int8_row
#include q4/int8_columns
#endif

#if TOTAL == sums_and_squares
// The row is quantized before its RMSNorm: partial sums of four columns, and of the squares of the row, which the
// producer wrote beside it and which give the RMSNorm scale.
override EPS: f32 = 0.0;

struct Total {
    sums: vec4<f32>,
    squares: f32,
}

fn combine(a: Total, b: Total) -> Total {
    return Total(a.sums + b.sums, a.squares + b.squares);
}

fn plus_group(total: Total, four: Four, row: Places, of_row: vec4<f32>) -> Total {
    return Total(plus_bytes(total.sums, four, row, of_row), total.squares + of_row.w);
}

fn sums_of(total: Total) -> vec4<f32> {
    return total.sums * inverseSqrt(total.squares / f32(params.depth) + EPS);
}
#else
alias Total = vec4<f32>; // partial sums of four columns

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

fn sums_of(total: Total) -> vec4<f32> {
#if OPERANDS == floats
    return scaled(total);
#elif ROW == rms
    return total * row_scale;
#else
    return total;
#endif
}
#if OPERANDS == int8

fn plus_group(total: Total, four: Four, row: Places, of_row: vec4<f32>) -> Total {
    return plus_bytes(total, four, row, of_row);
}
#endif
#endif

#include q4/epilogue
#include q4/epilogue_unit

#if OPERANDS == floats
fn plus(sums: vec4<f32>, eight: Eight, column: u32) -> vec4<f32> {
    return plus_row(sums, numbers_of(eight, column), 0u);
}

// What a thread prefetches; made at once, since compilers for CPUs keep what is made field by field in memory.
struct Prefetched {
    first: Eight,
    second: Eight,
    third: Eight,
    fourth: Eight,
}

fn words_from(given: Vectors, n: u32) -> vec4<u32> {
    return vec4<u32>(given[0][n], given[1][n], given[2][n], given[3][n]);
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
    let places = (columns * params.column_bytes + k / 8u * BITS) / 16u;
    let low = vectors_at(places);
    if (BITS == 8u) {
        let high = vectors_at(places + 1u);
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
            fetch(columns, i + 3u * COOPERATING),
        );
    }
    return Prefetched(first, first, first, first);
}
#elif ROW != global
fn plus_quantized(mine: Total, four: Four, i: u32) -> Total {
    let first = i * 4u;
    let low = vec4<u32>(low_words[first], low_words[first + 1u], low_words[first + 2u], low_words[first + 3u]);
    let high = vec4<u32>(high_words[first], high_words[first + 1u], high_words[first + 2u], high_words[first + 3u]);
    var row = Places(low, high);
    if (BITS == 8u) {
        row = Places(vec4<u32>(low.x, high.x, low.y, high.y), vec4<u32>(low.z, high.z, low.w, high.w));
    }
    let step = step_of_quantized(i).size;
    let total = f32(sum_of_bytes(low) + sum_of_bytes(high));
    return plus_group(mine, four, row, vec4<f32>(step, 8.0 * total, 0.0, 0.0));
}
#endif

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = unit_of(group_index(group, grid), thread);
    let column = min(unit * 4u, params.columns - 1u);
    let member = member_of(thread);
    var mine = Total();
#if OPERANDS == floats
    let columns = columns_from(column);
    // There are fewer threads than words, so that each has a first load; it is in flight while the row is loaded.
    var i = member * select(1u, PREFETCHED, VECTOR_LOADS);
    var prefetched = prefetch(columns, i);
#endif
    if (member == 0u) {
        prefetch_residual(0u, column);
    }
#if OPERANDS == floats
    load_row(thread);
    loop {
        mine = plus(mine, prefetched.first, column);
        if (PREFETCHED == 4u) {
            let two = plus(mine, prefetched.second, column);
            mine = plus(plus(two, prefetched.third, column), prefetched.fourth, column);
        }
        i += COOPERATING * PREFETCHED;
        if (i * 8u >= params.depth) {
            break;
        }
        prefetched = prefetch(columns, i);
    }
#elif ROW != global
    var four = fetch(column, min(member, DEPTH_GROUPS - 1u));
    load_row(thread);
    for (var i = member; i < DEPTH_GROUPS; i += COOPERATING) {
        if (i != member) {
            four = fetch(column, i);
        }
        mine = plus_quantized(mine, four, i);
    }
#else
    for (var i = member; i < groups(); i += COOPERATING) {
        let row = in_weight_order(x[i * 3u], x[i * 3u + 1u]);
        mine = plus_group(mine, fetch(column, i), row, bitcast<vec4<f32>>(x[i * 3u + 2u]));
    }
#endif
    let total = reduce_unit(thread, mine);
    store_unit(thread, 0u, unit * 4u, unit_of(0u, thread), member == 0u, sums_of(total));
}
