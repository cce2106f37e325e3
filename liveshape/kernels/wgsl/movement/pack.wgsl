// Casts to integers of eight bits, packed four to a word: the lowest bits of the whole part, as a cast in C has it.
// TIn: f32, f16, i32, u32
override WG: u32 = 64;

struct Params {
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<TIn>>;
@group(0) @binding(2) var<uniform> params: Params;

#include common/bytes

fn each(i: u32) {
    out[i] = packed(vec4<i32>(x[i]));
}

#include common/each_in_runs
