// Rotary embedding of queries and keys by a pair of tables, a thread per pair of elements. They are [B, S, H, D], or
// [B, H, S, D] with one head between a row and the next; a batch has tables of its own, or shares them.
// New keys may be written among those of a cache: per batch one run of `key_run` elements, `key_start` into it, or each
// row at its slot.
#choice VALUES: none, to_cache
// T: f32, f16
// TAngle: f32, f16
// TKey: f32, f16
override WG: u32 = 64;
override INTERLEAVED: bool = true; // a pair is two neighbours, else elements `half` apart with angles of their own

struct Params {
    query_pairs: u32,
    count: u32,
    query_heads: u32, // vectors from a row to the next
    key_heads: u32,
    query_vectors: u32, // of one batch
    key_vectors: u32,
    rows: u32, // S
    size: u32, // D
    half: u32,
#if POSITIONS == table
    positions: u32, // that the tables have
#else
    first_row: u32, // of the tables
#endif
    table_width: u32,
    table_stride: u32, // elements of the tables of one batch
    key_run: u32,
    key_start: u32,
    key_stride: u32, // elements of one batch of the cache
}
@group(0) @binding(0) var<storage, read_write> query_out: array<T>;
@group(0) @binding(1) var<storage, read_write> key_out: array<TKey>;
@group(0) @binding(2) var<storage, read> queries: array<T>;
@group(0) @binding(3) var<storage, read> keys: array<T>;
@group(0) @binding(4) var<storage, read> cosine: array<TAngle>;
@group(0) @binding(5) var<storage, read> sine: array<TAngle>;
#if VALUES == to_cache
@group(0) @binding(6) var<storage, read> values: array<T>;
@group(0) @binding(7) var<storage, read_write> value_out: array<TKey>;
#if POSITIONS == table
@group(0) @binding(8) var<storage, read> row_table: array<vec2<i32>>;
#endif
#elif POSITIONS == table
@group(0) @binding(6) var<storage, read> row_table: array<vec2<i32>>;
#endif

#include attention/rotate

// The columns of pair `i`: `half` pairs are rotated, what partial rotary leaves follows in twos.
fn columns_of(i: u32) -> vec2<u32> {
    if (i >= params.half || INTERLEAVED) {
        return vec2<u32>(2u * i, 2u * i + 1u);
    }
    return vec2<u32>(i, i + params.half);
}

fn each(index: u32) {
    let of_keys = index >= params.query_pairs;
    let unit = select(index, index - params.query_pairs, of_keys);
    let vector = unit / (params.size / 2u);
    let i = unit % (params.size / 2u);
    let places = vector * params.size + columns_of(i);
    var x = vec2<f32>();
    if (of_keys) {
        x = vec2<f32>(f32(keys[places.x]), f32(keys[places.y]));
    } else {
        x = vec2<f32>(f32(queries[places.x]), f32(queries[places.y]));
    }
    if (i < params.half) {
        let row = vector / select(params.query_heads, params.key_heads, of_keys) % params.rows;
        let batch = vector / select(params.query_vectors, params.key_vectors, of_keys);
#if POSITIONS == table
        let angle = batch * params.table_stride + angle_row(row) * params.table_width + i;
#else
        let angle = batch * params.table_stride + (params.first_row + row) * params.table_width + i;
#endif
        x = rotated(x, angle, angle + select(params.half, 0u, INTERLEAVED));
    }
    if (of_keys) {
#if POSITIONS == consecutive
        let into = places / params.key_run * params.key_stride + params.key_start + places % params.key_run;
#elif VALUES == to_cache
        let width = params.key_heads * params.size;
        let slot = slot_of(vector / params.key_heads % params.rows);
        if (slot >= params.key_stride / width) {
            return;
        }
        let into = places / params.key_run * params.key_stride + slot * width + places % width;
#else
        let into = places;
#endif
        key_out[into.x] = TKey(x.x);
        key_out[into.y] = TKey(x.y);
#if VALUES == to_cache
        value_out[into.x] = TKey(values[places.x]);
        value_out[into.y] = TKey(values[places.y]);
#endif
    } else {
        query_out[places.x] = T(x.x);
        query_out[places.y] = T(x.y);
    }
}

#include common/each_in_runs
