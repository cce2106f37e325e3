// New values go with the keys, to the same places of a cache of their own.
@group(0) @binding(6) var<storage, read> values: array<T>;
@group(0) @binding(7) var<storage, read_write> value_out: array<TKey>;
@group(0) @binding(8) var<uniform> params: Params;

fn put_values(places: vec2<u32>, into: vec2<u32>) {
    value_out[into.x] = TKey(values[places.x]);
    value_out[into.y] = TKey(values[places.y]);
}
