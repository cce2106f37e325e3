// out = complex numbers of two real ones over the shape that these broadcast to: a real and an imaginary part, or a
// magnitude and an angle where POLAR says so.
#include elementwise/broadcast
#include elementwise/special_functions
override WG: u32 = 64;
override POLAR: bool = false;

struct Params {
    count: u32,
    rank: u32,
    dims: array<vec4<u32>, 8>,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

fn each(i: u32) {
    let at = offsets(i);
    let left = a[at.x];
    let right = b[at.y];
    if (POLAR) {
        out[i] = left * direction(right);
    } else {
        out[i] = vec2<f32>(left, right);
    }
}

#include common/each_in_runs
