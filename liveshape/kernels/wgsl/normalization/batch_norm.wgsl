// out = (x - mean) / sqrt(variance + eps) * weight + bias, each of them one number per channel.
// composable: each vector is stored once.
// T: f32, f16
override WG: u32 = 64;
override WEIGHT: bool = true;
override BIAS: bool = true;

struct Params {
    count: u32,
    span: u32, // vectors per channel
    channels: u32,
    eps: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<V>;
@group(0) @binding(1) var<storage, read> x: array<V>;
@group(0) @binding(2) var<storage, read> mean: array<TMean>;
@group(0) @binding(3) var<storage, read> variance: array<TMean>;
@group(0) @binding(4) var<storage, read> weight: array<TWeight>;
@group(0) @binding(5) var<storage, read> bias: array<TWeight>;
@group(0) @binding(6) var<uniform> params: Params;

fn each(i: u32) {
    let channel = (i / params.span) % params.channels;
    var scale = inverseSqrt(f32(variance[channel]) + params.eps);
    if (WEIGHT) {
        scale *= f32(weight[channel]);
    }
    var value = (V_math(x[i]) - f32(mean[channel])) * scale;
    if (BIAS) {
        value += f32(bias[channel]);
    }
    out[i] = V(value);
}

#include common/each_in_runs
