// One more dimension of an advanced index: linear = linear * size + index, broadcast; -1 marks what lies outside.
override WG: u32 = 64;
override FIRST_DIMENSION: bool = false;

struct Params {
    count: u32,
    rank: u32,
    size: i32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> linear: array<i32>;
@group(0) @binding(1) var<storage, read> index: array<i32>;

#include movement/walk

fn each(i: u32) {
    var at = index[walk(i)];
    if (at < 0) {
        at += params.size;
    }
    var total = 0;
    if (!FIRST_DIMENSION) {
        total = linear[i];
    }
    if (total < 0 || at < 0 || at >= params.size) {
        linear[i] = -1;
    } else {
        linear[i] = total * params.size + at;
    }
}

#include common/each_in_runs
