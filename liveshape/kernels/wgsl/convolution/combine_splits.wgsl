// Split-K of a convolution: sums the partial sums of its splits.
// composable: a sum is stored once.
// T: f32, f16
override WG: u32 = 64;
override BIAS: bool = false;

struct Params {
    count: u32,
    splits: u32,
    channels: u32,
    pixels: u32, // of a channel
    low: f32,
    high: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> sums: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<T>;

#include common/clamped

fn each(i: u32) {
    var value = 0.0;
    for (var split = 0u; split < params.splits; split++) {
        value += sums[split * params.count + i];
    }
    if (BIAS) {
        value += f32(bias[i / params.pixels % params.channels]);
    }
    out[i] = T(clamped(value));
}

#include common/each
