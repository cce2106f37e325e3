// The scratch of a subgroup of attention/matrix_tiles.wgsl: queries, scores, weights or sums of one matrix at a time, in
// fours of floats or eights of halves; and what scores become under the mask.
const SCORE_PITCH: u32 = MATRIX / 4 + 2; // units store two of a row to eight banks at once
const WEIGHT_PITCH: u32 = KEYS / 8 + 1;
const QUERY_PITCH: u32 = MATRIX / 8 + 1;
const SCRATCH: u32 = MATRIX * SCORE_PITCH;

// Units read arrays of workgroup memory wrongly whose place is no multiple of 16 bytes, as those behind a number alone
// have (H200): all here are made of as many.
var<workgroup> scores: array<vec4<u32>, WG / LANES * SCRATCH>;

// WGSL has barriers of workgroups, none of subgroups. The threads of a subgroup that has matrices run in step, and their
// reads and writes of one array stay in the order of the text: nothing is to be done, but this says where it counts, and
// tests that have no such subgroups put a barrier in its place.
fn in_order() {
}

// A score under the mask; keys past the end are hidden.
fn masked_score(visible: Visible, key: u32, last_key: u32, score: f32) -> f32 {
    return select(params.hidden, masked(visible, min(key, last_key - 1u), score), key < last_key);
}

fn masked_four(visible: Visible, key: u32, last_key: u32, four: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(
        masked_score(visible, key, last_key, four.x), masked_score(visible, key + 1u, last_key, four.y),
        masked_score(visible, key + 2u, last_key, four.z), masked_score(visible, key + 3u, last_key, four.w),
    );
}

fn weights_of(four: vec4<f32>, relative_to: f32, shift: f32) -> vec4<f32> {
    return select(exp(four - relative_to + shift), vec4<f32>(), four < vec4<f32>(LOWEST));
}

fn stored_four(place: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(scores[place]);
}

fn rescale(place: u32, correction: f32) {
    scores[place] = bitcast<vec4<u32>>(stored_four(place) * correction);
}
