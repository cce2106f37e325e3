// out = OP(x), a complex number of a complex number.
#include elementwise/special_functions
override WG: u32 = 64;
override OP: u32 = NEG;

const NEG = 0u;
const CONJUGATE = 1u;
const RECIPROCAL = 2u;
const SQUARE = 3u;
const EXP = 4u;

struct Params {
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec2<f32>>;
@group(0) @binding(2) var<uniform> params: Params;

fn each(i: u32) {
    let z = x[i];
    switch (OP) {
        case CONJUGATE: { out[i] = vec2<f32>(z.x, -z.y); }
        case RECIPROCAL: {
            // Scaled by the larger part, so that no square overflows.
            let scale = max(abs(z.x), abs(z.y));
            let unit = z / scale;
            out[i] = vec2<f32>(unit.x, -unit.y) / dot(unit, unit) / scale;
        }
        case SQUARE: { out[i] = vec2<f32>((z.x - z.y) * (z.x + z.y), 2.0 * z.x * z.y); }
        case EXP: {
            out[i] = exponential(vec4<f32>(z.x)).x * direction(z.y);
        }
        default: { out[i] = -z; }
    }
}

#include common/each
