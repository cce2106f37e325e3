// out = gate * sigmoid(gate) * up; every product is rounded as the three operators that it stands for would.
#include elementwise/special_functions
#include elementwise/unary_functions
// T: f32, f16
override WG: u32 = 64;
override OP: u32 = SIGMOID;

struct Params {
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<T>>;
@group(0) @binding(1) var<storage, read> gate: array<vec4<T>>;
@group(0) @binding(2) var<storage, read> up: array<vec4<T>>;
@group(0) @binding(3) var<uniform> params: Params;

fn each(i: u32) {
    let x = vec4<f32>(gate[i]);
    let sigmoid = vec4<T>(of_floats(x, vec4<f32>(0.0)));
    let silu = vec4<T>(x * vec4<f32>(sigmoid));
    out[i] = vec4<T>(vec4<f32>(silu) * vec4<f32>(up[i]));
}

#include common/each
