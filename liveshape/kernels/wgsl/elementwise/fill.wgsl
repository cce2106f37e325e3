// out = first + step * index, four elements a thread; a plain fill has step zero.
override WG: u32 = 64;
override INTEGER: bool = false; // whole numbers are computed in i32, all others in f32

struct Params {
    count: u32,
    first: f32,
    step: f32,
    whole_first: i32,
    whole_step: i32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<T>>;
@group(0) @binding(1) var<uniform> params: Params;

fn each(i: u32) {
    let index = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u);
    if (INTEGER) {
        out[i] = vec4<T>(params.whole_first + params.whole_step * vec4<i32>(index));
    } else {
        out[i] = vec4<T>(params.first + params.step * vec4<f32>(index));
    }
}

#include common/each
