// out[outer, at, :] += the sum of values[outer, pick, :] over every pick that goes there, in order: one thread per
// element of out, because WGSL adds floats atomically nowhere. The index was sorted, so that a thread finds its own by
// search.
override WG: u32 = 64;

struct Params {
    count: u32,
    picks: u32,
    inner: u32,
    size: u32,
    rank: u32,
    skip: u32, // picks of an element that were added before, and how many are added now
    most: u32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> pairs: array<vec2<i32>>;
@group(0) @binding(2) var<storage, read> values: array<T>;

#include movement/walk
#include sorting/sorted_runs

fn key_at(i: u32) -> u32 {
    return bitcast<u32>(pairs[i].x);
}

fn each(i: u32) {
    let row = i / params.inner;
    let key = (row % params.size) ^ 0x80000000u; // of a signed number
    let outer = row / params.size;
    var sum = T_math(out[i]);
    let first = ahead_of(key, 0u, params.picks, false) + params.skip;
    for (var next = first; next < min(first + params.most, params.picks); next++) {
        let pair = pairs[next];
        if (bitcast<u32>(pair.x) != key) {
            break;
        }
        sum += T_math(values[walk((outer * params.picks + u32(pair.y)) * params.inner + i % params.inner)]);
    }
    out[i] = T(sum);
}

#include common/each
