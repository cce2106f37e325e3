// Sorted runs of `width` pairs, two by two, as runs of twice as many; only the first `keep` of each run are looked at.
override WG: u32 = 64;

struct Params {
    count: u32,
    length: u32, // of a row
    width: u32,
    keep: u32,
}
@group(0) @binding(0) var<storage, read_write> merged: array<vec2<i32>>;
@group(0) @binding(1) var<storage, read> pairs: array<vec2<i32>>;

#include sorting/sorted_runs

fn key_at(i: u32) -> u32 {
    return bitcast<u32>(pairs[i].x);
}

fn each(i: u32) {
    let at = i % params.length;
    let own = at % params.width;
    if (own >= params.keep) {
        return;
    }
    let run = at - own;
    let right = (at / params.width) % 2u;
    let beside = min(select(run + params.width, run - params.width, right == 1u), params.length);
    let count = min(min(params.width, params.length - beside), params.keep);
    let row = i - at;
    let pair = pairs[i];
    let place = own + ahead_of(bitcast<u32>(pair.x), row + beside, count, right == 1u);
    if (place < params.keep) {
        merged[row + run - right * params.width + place] = pair;
    }
}

#include common/each_in_runs
