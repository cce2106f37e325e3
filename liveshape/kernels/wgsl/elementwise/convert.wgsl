// Copy, converting each element to the output's type.
override WG: u32 = 64;
override TO_BOOL: bool = false; // booleans are stored as 0 or 1, so a number must be tested, not truncated

struct Params {
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<TIn>>;
@group(0) @binding(2) var<uniform> params: Params;

fn each(i: u32) {
    let value = x[i];
    if (TO_BOOL) {
        // Not by !=, which is false for NaN as naga compiles it.
        out[i] = select(vec4<TOut>(1), vec4<TOut>(0), value == vec4<TIn>(0));
    } else {
        out[i] = vec4<TOut>(value);
    }
}

#include common/each
