// counts[i] = 1 where pair i has another key than the one before it, else 0; a NaN equals nothing.
override WG: u32 = 64;
override FLOATS: bool = false;

struct Params {
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> counts: array<i32>;
@group(0) @binding(1) var<storage, read> pairs: array<vec2<i32>>;

#include common/float_keys

fn each(i: u32) {
    let key = bitcast<u32>(pairs[i].x);
    let before = bitcast<u32>(pairs[max(i, 1u) - 1u].x);
    counts[i] = select(0, 1, i == 0u || key != before || (FLOATS && key == NAN_KEY));
}

#include common/each_in_runs
