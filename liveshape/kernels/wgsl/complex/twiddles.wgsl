// turns[k] = the k-th of `count` steps around the circle, clockwise, as a complex number.
#include elementwise/special_functions
override WG: u32 = 64;

struct Params {
    count: u32,
    clockwise: f32, // 1, or -1 for the other way round
}
@group(0) @binding(0) var<storage, read_write> turns: array<vec2<f32>>;
@group(0) @binding(1) var<uniform> params: Params;

fn each(i: u32) {
    // The shorter way round, where an angle is more exact.
    let steps = f32(i) - select(0.0, f32(params.count), i > params.count / 2u);
    let angle = vec4<f32>(6.28318531 * steps / f32(params.count));
    turns[i] = vec2<f32>(sine(angle, 1).x, -params.clockwise * sine(angle, 0).x);
}

#include common/each
