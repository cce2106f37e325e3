// The scores of tokens that were there already, less likely by the penalty. Each is made from its logit, so a token
// that was there twice is written twice, to the same. The last row has the longest history, each before it one token
// less.
// T: f32, f16
override WG: u32 = 64;

struct Params {
    count: u32, // tokens of the history of all rows together
    length: u32, // of the last row's
    rows: u32,
    start: u32, // of the first row
    temperature: f32,
    penalty: f32,
    vocabulary: u32,
}
@group(0) @binding(0) var<storage, read_write> scores: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<storage, read> history: array<i32>;
@group(0) @binding(3) var<uniform> params: Params;

#include sampling/score

fn each(i: u32) {
    let row = i / params.length;
    let place = i % params.length;
    let token = history[place];
    if (place + params.rows > params.length + row || token < 0 || token >= i32(params.vocabulary)) {
        return;
    }
    let logit = f32(x[params.start + row * params.vocabulary + u32(token)]);
    let penalized = select(logit / params.penalty, logit * params.penalty, logit < 0.0);
    scores[row * params.vocabulary + u32(token)] = score_of(penalized, params.temperature);
}

#include common/each
