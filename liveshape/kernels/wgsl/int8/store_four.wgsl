// Four neighbours of the output: the bytes of a word, or floats.
#choice OUTPUT: int8_output, float_output
#if OUTPUT == float_output
// TOut: f32, f16
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;

fn store_four(first: u32, elements: u32, values: vec4<f32>) {
    for (var k = 0u; k < 4u; k++) {
        if (first + k < elements) {
            out[first + k] = TOut(values[k]);
        }
    }
}
#else
@group(0) @binding(0) var<storage, read_write> out: array<u32>;

#include quantization/affine

fn store_four(first: u32, elements: u32, values: vec4<f32>) {
    var codes = vec4<i32>();
    for (var k = 0u; k < 4u; k++) {
        codes[k] = code_of(values[k], params.inverse, params.zero, -128.0, 127.0);
    }
    out[first / 4u] = packed(codes);
}
#endif
