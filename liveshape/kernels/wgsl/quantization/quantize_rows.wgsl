// Quantizes rows of activations to int8, in the order of the nibbles of a 4-bit weight. Steps are found here for every
// 32 neighbours, or given for each row.
// T: f32, f16
override WG: u32 = 64;

struct Params {
    count: u32, // of groups of 32 neighbours
    per_row: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<T>>;
#if STEPS == given_steps
// TScale: f32, f16
@group(0) @binding(2) var<storage, read> scale: array<TScale>;
@group(0) @binding(3) var<storage, read> zero_point: array<u32>;
#endif

#include quantization/quantize_group

fn each(i: u32) {
    store_quantized(i, Eight(
        vec4<f32>(x[i * 8u]), vec4<f32>(x[i * 8u + 1u]), vec4<f32>(x[i * 8u + 2u]), vec4<f32>(x[i * 8u + 3u]),
        vec4<f32>(x[i * 8u + 4u]), vec4<f32>(x[i * 8u + 5u]), vec4<f32>(x[i * 8u + 6u]), vec4<f32>(x[i * 8u + 7u]),
    ));
}

#include common/each_in_runs
