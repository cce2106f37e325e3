// out = x, and where the index names an element of it, what OP makes of it and of all that the source has for it, in
// order. Each line of the index was sorted, so an element finds its own by two searches, and nothing is written twice.
// T: f32, f16, i32, u32
override WG: u32 = 64;
override OP: u32 = SET;
override INCLUDE_SELF: bool = true; // whether what x holds takes part

const SET = 0u;
const SUM = 1u;
const PRODUCT = 2u;
const MEAN = 3u;
const MAXIMUM = 4u;
const MINIMUM = 5u;

struct Params {
    count: u32,
    rank: u32,
    axis: u32,
    length: u32, // of a line of the index
    stride: u32, // of the source along the axis
    skip: u32, // elements of the source that a place got before, and how many it gets now
    most: u32,
    sizes: array<vec4<u32>, 2>,
    extents: array<vec4<u32>, 2>, // of the index
    strides: array<vec4<u32>, 2>, // of the source
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<storage, read> pairs: array<vec2<i32>>;
@group(0) @binding(3) var<storage, read> source: array<T>;

#include common/element_keys
#include sorting/sorted_runs

fn key_at(i: u32) -> u32 {
    return bitcast<u32>(pairs[i].x);
}

fn joined(a: T_math, b: T_math) -> T_math {
    if (OP == SUM || OP == MEAN) {
        return a + b;
    }
    if (OP == PRODUCT) {
        return a * b;
    }
    return select(a, b, extreme_key(b, OP == MINIMUM) > extreme_key(a, OP == MINIMUM));
}

fn each(i: u32) {
    if (params.skip == 0u) {
        out[i] = x[i];
    }
    var rest = i;
    var at = 0u;
    var line = 0u;
    var lines = 1u;
    var start = 0u;
    for (var axis = params.rank; axis > 0u; axis--) {
        let dim = axis - 1u;
        let size = params.sizes[dim >> 2u][dim & 3u];
        let index = rest % size;
        rest /= size;
        if (dim == params.axis) {
            at = index;
            continue;
        }
        let extent = params.extents[dim >> 2u][dim & 3u];
        if (index >= extent) {
            return;
        }
        line += index * lines;
        lines *= extent;
        start += index * params.strides[dim >> 2u][dim & 3u];
    }
    let key = at ^ 0x80000000u; // of a signed number
    let row = line * params.length;
    let end = row + ahead_of(key, row, params.length, true);
    let first = row + ahead_of(key, row, params.length, false);
    if (first + params.skip >= end) {
        return;
    }
    if (OP == SET) {
        out[i] = source[start + u32(pairs[end - 1u].y) * params.stride];
        return;
    }
    var total = T_math(out[i]);
    var next = first + params.skip;
    let last = min(next + params.most, end);
    if (!INCLUDE_SELF && params.skip == 0u) {
        total = T_math(source[start + u32(pairs[first].y) * params.stride]);
        next++;
    }
    for (; next < last; next++) {
        total = joined(total, T_math(source[start + u32(pairs[next].y) * params.stride]));
    }
    if (OP == MEAN && last == end) {
        total /= T_math(end - first + select(0u, 1u, INCLUDE_SELF));
    }
    out[i] = T(total);
}

#include common/each
