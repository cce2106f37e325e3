// Where a key lies in its cache, and four neighbours of it or of its value.
#choice CACHE: contiguous, paged

#if CACHE == contiguous
fn key_place(unit: Unit, key: u32) -> u32 {
    return params.key_start + unit.batch * params.key_batch + key * params.key_row + unit.head * params.key_head;
}

// Where the value of a key at a place lies.
fn value_place(unit: Unit, key: u32, place: u32) -> u32 {
    let first = params.value_start + unit.batch * params.value_batch;
    return first + key * params.value_row + unit.head * params.value_head;
}
#endif

#include attention/head_fours
