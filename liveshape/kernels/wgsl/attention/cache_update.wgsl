// Writes new rows of keys and values into their caches: per batch one contiguous run, `start` elements into the cache.
// T: f32, f16
// TCache: f32, f16
override WG: u32 = 64;

struct Params {
    count: u32, // elements of the new keys
    run: u32, // elements of one batch of them
    start: u32,
    cache_stride: u32, // elements of one batch of a cache
}
@group(0) @binding(0) var<storage, read_write> key_cache: array<TCache>;
@group(0) @binding(1) var<storage, read_write> value_cache: array<TCache>;
@group(0) @binding(2) var<storage, read> keys: array<T>;
@group(0) @binding(3) var<storage, read> values: array<T>;
@group(0) @binding(4) var<uniform> params: Params;

fn each(i: u32) {
    let place = i / params.run * params.cache_stride + params.start + i % params.run;
    key_cache[place] = TCache(keys[i]);
    value_cache[place] = TCache(values[i]);
}

#include common/each
