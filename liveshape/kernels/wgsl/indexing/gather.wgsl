// out[i] = x[i . strides + index[i] * stride]; an index outside of the dimension gives `invalid` and reads nothing.
// composable: each element is stored once.
override WG: u32 = 64;

struct Params {
    count: u32,
    rank: u32,
    size: i32,
    stride: u32,
    invalid: f32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<storage, read> index: array<i32>;

#include movement/walk

fn each(i: u32) {
    let at = index[i];
    if (at < 0 || at >= params.size) {
        out[i] = T(params.invalid);
        return;
    }
    out[i] = x[u32(at) * params.stride + walk(i)];
}

#include common/each_in_runs
