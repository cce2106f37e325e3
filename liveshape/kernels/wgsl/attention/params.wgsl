// The queries that share one head of keys are its rows: row r is query `r / group` of the r % group-th head of the
// group. A unit is a block of rows of one head of one batch; where a tensor begins and its strides are in elements, in
// vectors those of keys and values.
#choice CACHE: contiguous, paged
override HEAD_SIZE: u32 = 64; // elements of a head: of a key or of its value, whichever has more
override KEY_SIZE: u32 = 64;
override VALUE_SIZE: u32 = 64;

const VEC4S: u32 = (HEAD_SIZE + 3) / 4;
const LOWEST: f32 = -3.4028234e38; // not -inf: the difference of two of them would be NaN

#if CACHE == paged
#include attention/lines
#else
// What every kernel needs comes first, then what finds keys and values: a kernel of few rows is over before a third line
// of 64 bytes comes from the cache (H200).
struct Params {
    units: u32,
    blocks: u32, // of rows, per head of keys
    key_heads: u32,
    group: u32,
    rows: u32, // queries times group
    context: u32, // keys
    splits: u32, // of the context, each for a workgroup of its own
    split_keys: u32,
    causal: u32,
    position: u32, // of the first query among the keys
    scale: f32,
    hidden: f32, // -inf, which no literal can say
    unseen: f32, // what a row is that sees no key: zero or NaN
    out_batch: u32,
    out_row: u32,
    out_head: u32,
    query_start: u32,
    query_batch: u32,
    query_row: u32,
    query_head: u32,
    key_start: u32,
    key_batch: u32,
    key_row: u32,
    key_head: u32,
    value_start: u32,
    value_batch: u32,
    value_row: u32,
    value_head: u32,
    masked: f32, // the score of a key that a mask of booleans hides
    mask_start: u32,
    mask_batch: u32,
    mask_head: u32,
    mask_row: u32,
    mask_key: u32,
    mask_batches: u32, // after which a mask is repeated
    bias_start: u32,
    bias_batch: u32,
    bias_head: u32,
    bias_row: u32,
    bias_key: u32,
    bias_batches: u32,
}

struct Unit {
    batch: u32,
    head: u32, // of keys
    block: u32,
}

fn unit_at(index: u32) -> Unit {
    let head = index / params.blocks;
    return Unit(head / params.key_heads, head % params.key_heads, index % params.blocks);
}

// Where a row of queries begins.
fn query_place(unit: Unit, row: u32) -> u32 {
    let head = unit.head * params.group + row % params.group;
    let first = params.query_start + unit.batch * params.query_batch;
    return first + row / params.group * params.query_row + head * params.query_head;
}

fn out_place(unit: Unit, row: u32) -> u32 {
    let head = unit.head * params.group + row % params.group;
    return unit.batch * params.out_batch + row / params.group * params.out_row + head * params.out_head;
}

fn unseen_row() -> f32 {
    return params.unseen;
}
#endif

// What the sums of a row come to.
fn averaged(sum: vec4<f32>, exp_sum: f32) -> vec4<f32> {
    return select(sum / select(exp_sum, 1.0, exp_sum == 0.0), vec4<f32>(unseen_row()), exp_sum == 0.0);
}
