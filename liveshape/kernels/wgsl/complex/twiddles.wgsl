// Twiddle factors: twiddles[k] = exp(-2 pi i k / count).
#include elementwise/special_functions
override WG: u32 = 64;

struct Params {
    count: u32,
    clockwise: f32, // 1, or -1 for the other way round
}
@group(0) @binding(0) var<storage, read_write> twiddles: array<vec2<f32>>;
@group(0) @binding(1) var<uniform> params: Params;

fn each(i: u32) {
    // The shorter way round, where an angle is more exact.
    let steps = f32(i) - select(0.0, f32(params.count), i > params.count / 2u);
    let turn = direction(6.28318531 * steps / f32(params.count));
    twiddles[i] = vec2<f32>(turn.x, -params.clockwise * turn.y);
}

#include common/each_in_runs
