// The order of the rows of x: runs of `width` of them, two by two, as runs of twice as many; a width of 0 begins with
// each row by itself. Only the second number of a pair means anything.
// T: f32, f16, i32, u32
override WG: u32 = 64;

struct Params {
    count: u32,
    width: u32,
    rows: u32,
    columns: u32,
    inner: u32,
}
@group(0) @binding(0) var<storage, read_write> merged: array<vec2<i32>>;
@group(0) @binding(1) var<storage, read> pairs: array<vec2<i32>>;
@group(0) @binding(2) var<storage, read> x: array<T>;

#include sorting/row_order

fn each(i: u32) {
    if (params.width == 0u) {
        merged[i] = vec2<i32>(0, i32(i));
        return;
    }
    let own = i % params.width;
    let run = i - own;
    let right = (i / params.width) % 2u;
    let beside = min(select(run + params.width, run - params.width, right == 1u), params.count);
    let pair = pairs[i];
    var low = 0u;
    var high = min(params.width, params.count - beside);
    while (low < high) {
        let middle = (low + high) / 2u;
        // Equal rows keep their order: those of the left run go first.
        if (compare(u32(pairs[beside + middle].y), u32(pair.y)) < i32(right)) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    merged[run - right * params.width + own + low] = pair;
}

#include common/each
