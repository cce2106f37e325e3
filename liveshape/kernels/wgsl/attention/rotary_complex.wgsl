// Rotary embedding of x [B, N, C]: neighbours are one complex number, turned by the complex number at its place in [N,
// C].
// T: f32, f16
// TAngle: f32, f16
override WG: u32 = 64;

struct Params {
    count: u32, // of pairs
    period: u32, // pairs of [N, C]
}
@group(0) @binding(0) var<storage, read_write> out: array<vec2<T>>;
@group(0) @binding(1) var<storage, read> x: array<vec2<T>>;
@group(0) @binding(2) var<storage, read> angles: array<vec2<TAngle>>;

fn each(i: u32) {
    let value = vec2<f32>(x[i]);
    let angle = vec2<f32>(angles[i % params.period]);
    out[i] = vec2<T>(value * angle.x + vec2<f32>(-value.y, value.x) * angle.y);
}

#include common/each_in_runs
