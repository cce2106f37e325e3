// Quantizes x to integers of eight bits; a thread writes a word of four.
// T: f32, f16
override WG: u32 = 64;
override PER_ELEMENT: bool = false; // four neighbours may belong to different scales, so each is looked up by itself

@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<T>>;
#include quantization/qparams
#include quantization/affine
#include common/bytes

fn each(i: u32) {
    let four = vec4<f32>(x[i]);
    var codes = vec4<i32>();
    var at = place_of(4u * i);
    for (var k = 0u; k < 4u; k++) {
        if (PER_ELEMENT && k > 0u) {
            at = place_of(4u * i + k);
        }
        codes[k] = code_of(four[k], inverse_at(at), zero_at(at), params.low, params.high);
    }
    out[i] = packed(codes);
}

#include common/each_in_runs
