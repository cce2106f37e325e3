// The scores of some rows of logits that lie behind each other.
// T: f32, f16
override WG: u32 = 256;

struct Params {
    count: u32,
#if SETTINGS == by_row
    vocabulary: u32,
#else
    start: u32, // of the first row
    temperature: f32,
#endif
}
@group(0) @binding(0) var<storage, read_write> scores: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<T>;
#if SETTINGS == by_row
@group(0) @binding(2) var<storage, read> settings: array<i32>;
#endif

#include sampling/score
#include sampling/settings

fn each(i: u32) {
#if SETTINGS == by_row
    scores[i] = score_of(f32(x[i]), divisor_of(settings_of(i / params.vocabulary)));
#else
    scores[i] = score_of(f32(x[params.start + i]), params.temperature);
#endif
}

#include common/each_in_runs
