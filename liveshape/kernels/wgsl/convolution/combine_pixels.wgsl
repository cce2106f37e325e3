// Split-K of a convolution with its channels last: sums the partial sums of its splits.
// composable: a sum is stored once.
// TOut: f32, f16
// TBias: f32, f16
#choice STORES: fours, ones
override WG: u32 = 64;
override BIAS: bool = false;

struct Params {
    count: u32, // of what is stored at once
    splits: u32,
    channels: u32, // in fours where these are stored at once
}
#if STORES == fours
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> bias: array<vec4<TBias>>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> sums: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<TBias>;
#endif

fn each(i: u32) {
    var total = sums[i];
    for (var split = 1u; split < params.splits; split++) {
        total += sums[split * params.count + i];
    }
#if STORES == fours
    if (BIAS) {
        total += vec4<f32>(bias[i % params.channels]);
    }
    out[i] = vec4<TOut>(total);
#else
    if (BIAS) {
        total += f32(bias[i % params.channels]);
    }
    out[i] = TOut(total);
#endif
}

#include common/each
