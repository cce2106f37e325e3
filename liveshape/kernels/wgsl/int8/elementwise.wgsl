// out = a + alpha * b or a, RELU or not, of integers of eight bits, each tensor with a scale and a zero point.
#include elementwise/broadcast
override WG: u32 = 64;
override HAS_B: bool = false;
override RELU: bool = false;
override CONTIGUOUS: bool = true; // the operands lie as the output does, so four neighbours are a word of each

struct Params {
    count: u32, // words of four
    elements: u32,
    rank: u32,
    alpha: f32,
    a_scale: f32,
    a_zero: i32,
    b_scale: f32,
    b_zero: i32,
    inverse: f32, // of the output's scale
    zero: f32,
    dims: array<vec4<u32>, 8>,
}
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;
@group(0) @binding(3) var<uniform> params: Params;

#include quantization/affine
#include common/bytes

fn each(i: u32) {
    var left = vec4<i32>();
    var right = vec4<i32>();
    if (CONTIGUOUS) {
        left = signed_bytes(a[i]);
        right = signed_bytes(b[i]);
    } else {
        for (var k = 0u; k < 4u; k++) {
            let at = offsets(min(4u * i + k, params.elements - 1u));
            left[k] = signed_byte(a[at.x / 4u], at.x % 4u);
            right[k] = signed_byte(b[at.y / 4u], at.y % 4u);
        }
    }
    var values = vec4<f32>(left - vec4<i32>(params.a_zero)) * params.a_scale;
    if (HAS_B) {
        values += params.alpha * (vec4<f32>(right - vec4<i32>(params.b_zero)) * params.b_scale);
    }
    if (RELU) {
        values = max(values, vec4<f32>());
    }
    var codes = vec4<i32>();
    for (var k = 0u; k < 4u; k++) {
        codes[k] = code_of(values[k], params.inverse, params.zero, -128.0, 127.0);
    }
    out[i] = packed(codes);
}

#include common/each
