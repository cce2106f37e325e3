// The queries that share one head of keys are its rows: row r is query `r / group` of the r % group-th head of the
// group. A unit is a block of rows of one head of one batch; strides are in elements, those of keys and values in
// vectors.
#choice CACHE: contiguous, paged
override HEAD_SIZE: u32 = 64; // elements of a head

const VEC4S: u32 = (HEAD_SIZE + 3) / 4;
const LOWEST: f32 = -3.4028234e38; // not -inf: the difference of two of them would be NaN

#if CACHE == paged
#include attention/lines
#else
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
    query_batch: u32,
    query_row: u32,
    query_head: u32,
    key_batch: u32,
    key_row: u32,
    key_head: u32,
    mask_batch: u32,
    mask_head: u32,
    mask_row: u32,
    mask_key: u32,
    scale: f32,
    hidden: f32, // -inf, which no literal can say
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

// Where a row of queries begins; that of the output too, which has the same shape.
fn query_place(unit: Unit, row: u32) -> u32 {
    let head = unit.head * params.group + row % params.group;
    return unit.batch * params.query_batch + row / params.group * params.query_row + head * params.query_head;
}
#endif
