// Where a key lies in its cache, and four neighbours of it or of its value.
#choice CACHE: contiguous, paged

#if CACHE == contiguous
fn key_place(unit: Unit, key: u32) -> u32 {
    return unit.batch * params.key_batch + key * params.key_row + unit.head * params.key_head;
}
#endif

#include attention/head_fours
