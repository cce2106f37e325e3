// out = OP(x, number), or OP(number, x) where SCALAR_FIRST says so, four elements a thread.
#include elementwise/special_functions
#include elementwise/binary_functions
override WG: u32 = 64;
override OP: u32 = ADD;
override INTEGER: bool = false; // whole numbers are computed in i32, all others in f32
override SCALAR_FIRST: bool = false;

struct Params {
    count: u32,
    number: f32,
    whole: i32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<TIn>>;
@group(0) @binding(2) var<uniform> params: Params;

fn each(i: u32) {
    if (INTEGER) {
        let given = vec4<i32>(x[i]);
        let fixed = vec4<i32>(params.whole);
        out[i] = vec4<TOut>(of_wholes(select(given, fixed, SCALAR_FIRST), select(fixed, given, SCALAR_FIRST), 1));
    } else {
        let given = vec4<f32>(x[i]);
        let fixed = vec4<f32>(params.number);
        out[i] = vec4<TOut>(of_floats(select(given, fixed, SCALAR_FIRST), select(fixed, given, SCALAR_FIRST), 1.0));
    }
}

#include common/each
