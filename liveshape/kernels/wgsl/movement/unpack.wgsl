// Casts integers of eight bits, packed four to a word, to another type.
// TOut: f32, f16, i32, u32
override WG: u32 = 64;
override SIGNED: bool = true;
override TO_BOOL: bool = false; // booleans are stored as 0 or 1, so a number must be tested

struct Params {
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;

#include common/bytes

fn each(i: u32) {
    var four = select(unsigned_bytes(x[i]), signed_bytes(x[i]), SIGNED);
    if (TO_BOOL) {
        four = select(vec4<i32>(0), vec4<i32>(1), four != vec4<i32>(0));
    }
    out[i] = vec4<TOut>(four);
}

#include common/each_in_runs
