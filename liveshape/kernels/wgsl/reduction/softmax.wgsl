// Softmax or its LOG along a dimension whose elements lie `inner` apart, stable and in f32; or the log-sum-exps of parts.
// composable x: it may be read for its statistics, and once more.
// composable: each element is stored once.
// TIn: f32, f16
// TOut: f32, f16
override WG: u32 = 256;
override LOG: bool = false;

struct Params {
    units: u32,
    count: u32,
    parts: u32,
    share: u32,
    inner: u32,
}
#if STAGE == parts
@group(0) @binding(0) var<storage, read_write> totals: array<vec2<f32>>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
#endif
@group(0) @binding(1) var<storage, read> x: array<TIn>;
#if STAGE == results
@group(0) @binding(2) var<storage, read> totals: array<vec2<f32>>;
#endif

fn element(start: u32, j: u32) -> f32 {
    return f32(x[start + j * params.inner]);
}

#include reduction/log_sum_exp

fn each_part(part: Part, thread: u32) {
    let start = (part.unit / params.inner) * params.count * params.inner + part.unit % params.inner;
    let total = log_sum_exp(part, thread, start);
    if (!is_part(part)) {
        return;
    }
#if STAGE == parts
    if (member_of(thread) == 0u) {
        totals[part.index] = total;
    }
#else
    for (var j = part.first + member_of(thread); j < part.last; j += COOPERATING) {
        let shifted = element(start, j) - total.x;
        if (LOG) {
            out[start + j * params.inner] = TOut(shifted - log(total.y));
        } else {
            out[start + j * params.inner] = TOut(exp(shifted) / total.y);
        }
    }
#endif
}
