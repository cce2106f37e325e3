// One pass of a Fourier transform along a dimension of `length`, whose elements lie `inner` apart. The passes before
// made transforms of `done` elements each; this one makes one of each `radix` of them, in the order that the next pass
// needs.
override WG: u32 = 64;

struct Params {
    count: u32,
    length: u32,
    inner: u32,
    done: u32,
    radix: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> twiddles: array<vec2<f32>>;

fn each(i: u32) {
    let row = i / params.inner;
    let at = row % params.length;
    let span = params.done * params.radix;
    let within = at % span;
    let first = (at / span) * params.done + within % params.done;
    let apart = params.length / params.radix;
    let start = (row - at) * params.inner + i % params.inner;
    var total = vec2<f32>(0.0);
    var phase = 0u; // step * within, modulo span
    for (var step = 0u; step < params.radix; step++) {
        let value = x[start + (first + step * apart) * params.inner];
        let factor = twiddles[phase * (params.length / span)];
        total += vec2<f32>(value.x * factor.x - value.y * factor.y, value.x * factor.y + value.y * factor.x);
        phase = (phase + within) % span;
    }
    out[i] = total;
}

#include common/each
