// Writes new rows of keys and values into their caches: per batch one contiguous run, `start` elements into the cache,
// or each row at the slot that its line (position, slot) of a table has. So it writes rows into one cache, too.
#choice CACHES: two, one
#if CACHES == one
// T: f32, f16, i32
// TCache: f32, f16, i32
#else
// T: f32, f16
// TCache: f32, f16
#endif
override WG: u32 = 64;

struct Params {
    count: u32, // elements of the new keys
    run: u32, // elements of one batch of them
#if POSITIONS == table
    width: u32, // elements of a row
#else
    start: u32,
#endif
    cache_stride: u32, // elements of one batch of a cache
}
#if CACHES == one
@group(0) @binding(0) var<storage, read_write> key_cache: array<TCache>;
@group(0) @binding(1) var<storage, read> keys: array<T>;
@group(0) @binding(2) var<storage, read> row_table: array<vec2<i32>>;
#else
@group(0) @binding(0) var<storage, read_write> key_cache: array<TCache>;
@group(0) @binding(1) var<storage, read_write> value_cache: array<TCache>;
@group(0) @binding(2) var<storage, read> keys: array<T>;
@group(0) @binding(3) var<storage, read> values: array<T>;
#if POSITIONS == table
@group(0) @binding(4) var<storage, read> row_table: array<vec2<i32>>;
#endif
#endif

#include attention/slots

fn each(i: u32) {
#if POSITIONS == table
    let slot = slot_of(i % params.run / params.width);
    if (slot >= params.cache_stride / params.width) {
        return;
    }
    let place = i / params.run * params.cache_stride + slot * params.width + i % params.width;
#else
    let place = i / params.run * params.cache_stride + params.start + i % params.run;
#endif
    key_cache[place] = TCache(keys[i]);
#if CACHES == two
    value_cache[place] = TCache(values[i]);
#endif
}

#include common/each_in_runs
