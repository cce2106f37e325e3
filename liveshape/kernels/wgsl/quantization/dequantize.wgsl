// Dequantizes integers of eight bits; a thread reads a word of four.
// TOut: f32, f16
override WG: u32 = 64;
override PER_ELEMENT: bool = false; // four neighbours may belong to different scales, so each is looked up by itself
override SIGNED: bool = true;

@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
#include quantization/qparams
#include common/bytes

fn each(i: u32) {
    let four = vec4<f32>(select(unsigned_bytes(x[i]), signed_bytes(x[i]), SIGNED));
    var values = vec4<f32>();
    var at = place_of(4u * i);
    for (var k = 0u; k < 4u; k++) {
        if (PER_ELEMENT && k > 0u) {
            at = place_of(4u * i + k);
        }
        values[k] = (four[k] - zero_at(at)) * scale_at(at);
    }
    out[i] = vec4<TOut>(values);
}

#include common/each_in_runs
