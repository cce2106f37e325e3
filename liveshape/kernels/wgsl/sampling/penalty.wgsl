// The scores of tokens that were there already: less likely by the repetition penalty, and those behind the prompt, which
// were sampled, by the penalties of frequency and presence, too. The last row has the longest history, each before it one
// token less; by row each has its own, in pages. Without counts each score is made from its logit, so a token that was
// there twice is written twice, to the same. With them a thread counts the tokens that are its own, in their order.
// T: f32, f16
// scratch counts
override WG: u32 = 64;

struct Params {
    count: u32, // threads of all rows together
    row_threads: u32,
    vocabulary: u32,
#if SETTINGS == by_row
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
    frequency: f32,
    presence: f32,
    prompt: u32,
#endif
}
@group(0) @binding(0) var<storage, read_write> scores: array<f32>;
@group(0) @binding(1) var<storage, read_write> counts: array<i32>;
@group(0) @binding(2) var<storage, read> x: array<T>;
@group(0) @binding(3) var<storage, read> history: array<i32>;
#if SETTINGS == by_row
@group(0) @binding(4) var<storage, read> settings: array<i32>;
@group(0) @binding(5) var<storage, read> block_table: array<i32>;
#endif

#include sampling/score
#include sampling/settings

struct Penalties {
    repetition: f32,
    frequency: f32,
    presence: f32,
    divisor: f32,
    sequence: u32,
    prompt: u32,
    length: u32, // of the history; 0: nothing is penalized
}

#if SETTINGS == by_row
fn penalties_of(row: u32) -> Penalties {
    let own = settings_of(row);
    var length = min(own.length, params.pages * params.page_size);
    if (!is_penalized(own) || own.sequence >= params.sequences) {
        length = 0u;
    }
    return Penalties(
        own.penalty, own.frequency, own.presence, divisor_of(own), own.sequence, min(own.prompt, length), length,
    );
}

// The token at a place of a sequence; none where its page is none.
fn token_at(sequence: u32, place: u32) -> i32 {
    let page = u32(block_table[sequence * params.pages + place / params.page_size]);
    if (page >= params.slots / params.page_size) {
        return -1;
    }
    return history[page * params.page_size + place % params.page_size];
}

fn first_of(row: u32) -> u32 {
    return row * params.vocabulary;
}
#else
fn penalties_of(row: u32) -> Penalties {
    let length = max(params.length + 1u + row, params.rows) - params.rows;
    return Penalties(
        params.penalty, params.frequency, params.presence, params.temperature, 0u, min(params.prompt, length), length,
    );
}

fn token_at(sequence: u32, place: u32) -> i32 {
    return history[place];
}

fn first_of(row: u32) -> u32 {
    return params.start + row * params.vocabulary;
}
#endif

fn put(own: Penalties, row: u32, token: u32, count: i32) {
    let logit = f32(x[first_of(row) + token]);
    var penalized = select(logit / own.repetition, logit * own.repetition, logit < 0.0);
    if (count > 0) {
        penalized -= f32(count) * own.frequency + own.presence;
    }
    scores[row * params.vocabulary + token] = score_of(penalized, own.divisor);
}

// Takes the token at a place, if it is one of the thread's own: its count begins, or grows where it is behind the prompt.
fn take(own: Penalties, row: u32, thread: u32, place: u32, begins: bool) {
    if (place >= own.length) {
        return;
    }
    let token = token_at(own.sequence, place);
    if (token < 0 || token >= i32(params.vocabulary) || u32(token) % params.row_threads != thread) {
        return;
    }
    let at = row * params.vocabulary + u32(token);
    if (begins) {
        counts[at] = 0;
    } else if (place < own.prompt) {
        put(own, row, u32(token), 0);
    } else {
        let count = counts[at] + 1;
        counts[at] = count;
        put(own, row, u32(token), count);
    }
}

fn each(i: u32) {
    let row = i / params.row_threads;
    let thread = i % params.row_threads;
    let own = penalties_of(row);
    if (own.frequency == 0.0 && own.presence == 0.0) {
        for (var place = thread; place < own.length; place += params.row_threads) {
            let token = token_at(own.sequence, place);
            if (token >= 0 && token < i32(params.vocabulary)) {
                put(own, row, u32(token), 0);
            }
        }
        return;
    }
    // By fours, since a software driver ends loops after so many turns.
    for (var place = own.prompt; place < own.length; place += 4u) {
        take(own, row, thread, place, true);
        take(own, row, thread, place + 1u, true);
        take(own, row, thread, place + 2u, true);
        take(own, row, thread, place + 3u, true);
    }
    for (var place = select(0u, own.prompt, own.repetition == 1.0); place < own.length; place += 4u) {
        take(own, row, thread, place, false);
        take(own, row, thread, place + 1u, false);
        take(own, row, thread, place + 2u, false);
        take(own, row, thread, place + 3u, false);
    }
}

#include common/each
