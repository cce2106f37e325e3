// out = OP(x), four elements a thread.
#include elementwise/special_functions
#choice FUNCTIONS: common, rare
#if FUNCTIONS == rare
#include elementwise/rare_functions
#else
#include elementwise/unary_functions
#endif
override WG: u32 = 64;
override OP: u32 = IDENTITY;
override INTEGER: bool = false; // whole numbers are computed in i32, all others in f32

struct Params {
    numbers: vec4<f32>,
    bounds: vec2<i32>,
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<TIn>>;
@group(0) @binding(2) var<uniform> params: Params;

fn each(i: u32) {
    if (INTEGER) {
        out[i] = vec4<TOut>(of_wholes(vec4<i32>(x[i]), params.bounds));
    } else {
        out[i] = vec4<TOut>(of_floats(vec4<f32>(x[i]), params.numbers));
    }
}

#include common/each
