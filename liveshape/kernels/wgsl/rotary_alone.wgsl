// Nothing goes with the keys.
@group(0) @binding(6) var<uniform> params: Params;

fn put_values(places: vec2<u32>, into: vec2<u32>) {
}
