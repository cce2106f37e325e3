// The scores of tokens that were there already, less likely by the penalty. Each is made from its logit, so a token
// that was there twice is written twice, to the same. The last row has the longest history, each before it one token
// less; by row each has its own, in pages.
// T: f32, f16
override WG: u32 = 64;

struct Params {
    count: u32, // tokens of the history of all rows together
#if SETTINGS == by_row
    row_threads: u32,
    page_size: u32,
    pages: u32, // of a sequence
    sequences: u32,
    slots: u32, // of the history
#else
    length: u32, // of the last row's
    rows: u32,
    start: u32, // of the first row
    temperature: f32,
    penalty: f32,
#endif
    vocabulary: u32,
}
@group(0) @binding(0) var<storage, read_write> scores: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<storage, read> history: array<i32>;
#if SETTINGS == by_row
@group(0) @binding(3) var<storage, read> settings: array<i32>;
@group(0) @binding(4) var<storage, read> block_table: array<i32>;
@group(0) @binding(5) var<uniform> params: Params;
#else
@group(0) @binding(3) var<uniform> params: Params;
#endif

#include sampling/score
#include sampling/settings

#if SETTINGS == by_row
// The token at a place of a sequence; none where its page is none.
fn token_at(sequence: u32, place: u32) -> i32 {
    let page = u32(block_table[sequence * params.pages + place / params.page_size]);
    if (page >= params.slots / params.page_size) {
        return -1;
    }
    return history[page * params.page_size + place % params.page_size];
}

fn each(i: u32) {
    let row = i / params.row_threads;
    let own = settings_of(row);
    if (!is_penalized(own) || own.sequence >= params.sequences) {
        return;
    }
    let length = min(own.length, params.pages * params.page_size);
    for (var place = i % params.row_threads; place < length; place += params.row_threads) {
        let token = token_at(own.sequence, place);
        if (token >= 0 && token < i32(params.vocabulary)) {
            let logit = f32(x[row * params.vocabulary + u32(token)]);
            let penalized = select(logit / own.penalty, logit * own.penalty, logit < 0.0);
            scores[row * params.vocabulary + u32(token)] = score_of(penalized, divisor_of(own));
        }
    }
}
#else
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
#endif

#include common/each
