// The elements of x that sorting/lane_select.wgsl has selected of each row, and their indices, in order.
// T: f32, f16, i32, u32
override WG: u32 = 64;

struct Params {
    count: u32,
    length: u32,
    inner: u32,
    keep: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read_write> indices: array<i32>;
@group(0) @binding(2) var<storage, read> selected: array<vec2<i32>>;
@group(0) @binding(3) var<storage, read> x: array<T>;

fn each(i: u32) {
    let row = i / params.keep;
    let pair = bitcast<vec2<u32>>(selected[i]);
    var rank = 0u;
    for (var j = row * params.keep; j < row * params.keep + params.keep; j++) {
        let other = bitcast<vec2<u32>>(selected[j]);
        if (other.x > pair.x || (other.x == pair.x && other.y < pair.y)) {
            rank++;
        }
    }
    let outer = row / params.inner;
    let column = row % params.inner;
    let place = (outer * params.keep + rank) * params.inner + column;
    out[place] = x[(outer * params.length + pair.y) * params.inner + column];
    indices[place] = i32(pair.y);
}

#include common/each
