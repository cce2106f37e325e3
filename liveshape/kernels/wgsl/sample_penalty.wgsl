// The scores of tokens that were there already, less likely by the penalty. Each is made from its logit, so a token that
// was there twice is written twice, to the same.
// T: f32, f16
override WG: u32 = 64;

struct Params {
    count: u32, // tokens of the history
    start: u32, // of the row
    temperature: f32,
    penalty: f32,
    vocabulary: u32,
}
@group(0) @binding(0) var<storage, read_write> scores: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<storage, read> history: array<i32>;
@group(0) @binding(3) var<uniform> params: Params;

// include score

fn each(i: u32) {
    let token = history[i];
    if (token < 0 || token >= i32(params.vocabulary)) {
        return;
    }
    let logit = f32(x[params.start + u32(token)]);
    let penalized = select(logit / params.penalty, logit * params.penalty, logit < 0.0);
    scores[u32(token)] = score_of(penalized, params.temperature);
}

// include each
