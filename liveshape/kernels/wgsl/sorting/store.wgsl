// out[outer, k, inner] = element `first` + k of the sorted row, looked up in x, or its INDEX along the row.
// T: f32, f16, i32, u32
override WG: u32 = 64;
override INDEX: bool = false;
override NAN_FIRST: bool = false; // a row with a NaN gives its first one

struct Params {
    count: u32,
    take: u32,
    first: u32,
    length: u32,
    inner: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> pairs: array<vec2<i32>>;
@group(0) @binding(2) var<storage, read> x: array<T>;

#include common/element_keys
#include sorting/sorted_runs

fn key_at(i: u32) -> u32 {
    return bitcast<u32>(pairs[i].x);
}

fn each(i: u32) {
    let at = i / params.inner;
    let outer = at / params.take;
    let row = (outer * params.inner + i % params.inner) * params.length;
    var place = params.first + at % params.take;
    if (NAN_FIRST && KIND == FLOAT && key_at(row + params.length - 1u) == NAN_KEY) {
        place = ahead_of(NAN_KEY, row, params.length, false);
    }
    let index = pairs[row + place].y;
    if (INDEX) {
        out[i] = TOut(index);
    } else {
        out[i] = TOut(x[(outer * params.length + u32(index)) * params.inner + i % params.inner]);
    }
}

#include common/each_in_runs
