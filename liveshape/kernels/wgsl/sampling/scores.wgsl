// The scores of some rows of logits that lie behind each other.
// T: f32, f16
override WG: u32 = 256;

struct Params {
    count: u32,
    start: u32, // of the first row
    temperature: f32,
}
@group(0) @binding(0) var<storage, read_write> scores: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<uniform> params: Params;

#include sampling/score

fn each(i: u32) {
    scores[i] = score_of(f32(x[params.start + i]), params.temperature);
}

#include common/each
