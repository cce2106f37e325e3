// out = OP(a, b) over the shape that a and b broadcast to, of complex numbers, one of which may be REAL.
#choice REAL: neither, real_left, real_right
#include elementwise/broadcast
override WG: u32 = 64;
override OP: u32 = ADD;

const ADD = 0u;
const SUB = 1u;
const MUL = 2u;
const DIV = 3u;

struct Params {
    count: u32,
    rank: u32,
    alpha: f32,
    dims: array<vec4<u32>, 8>,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;
#if REAL == real_left
@group(0) @binding(1) var<storage, read> a: array<f32>;
#else
@group(0) @binding(1) var<storage, read> a: array<vec2<f32>>;
#endif
#if REAL == real_right
@group(0) @binding(2) var<storage, read> b: array<f32>;
#else
@group(0) @binding(2) var<storage, read> b: array<vec2<f32>>;
#endif
@group(0) @binding(3) var<uniform> params: Params;

fn left_at(i: u32) -> vec2<f32> {
#if REAL == real_left
    return vec2<f32>(a[i], 0.0);
#else
    return a[i];
#endif
}

fn right_at(i: u32) -> vec2<f32> {
#if REAL == real_right
    return vec2<f32>(b[i], 0.0);
#else
    return b[i];
#endif
}

fn product(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return vec2<f32>((a.x * b.x) - (a.y * b.y), (a.x * b.y) + (a.y * b.x));
}

fn each(i: u32) {
    let at = offsets(i);
    let left = left_at(at.x);
    let right = right_at(at.y);
    switch (OP) {
        case SUB: { out[i] = left - params.alpha * right; }
        case MUL: { out[i] = product(left, right); }
        case DIV: {
            // Scaled by the larger part, so that no square overflows.
            let scale = max(abs(right.x), abs(right.y));
            let unit = right / scale;
            out[i] = product(left / scale, vec2<f32>(unit.x, -unit.y)) / dot(unit, unit);
        }
        default: { out[i] = left + params.alpha * right; }
    }
}

#include common/each
