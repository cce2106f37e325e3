// The right factor of a product as numbers.
@group(0) @binding(3) var<storage, read> weight: array<V>;
@group(0) @binding(4) var<uniform> params: Params;

fn weight_one(i: u32) -> f32 {
    return V_at(V_math(weight[i / V_lanes]), i % V_lanes);
}

fn weight_four(i: u32) -> vec4<f32> {
    if (V_lanes == 4u) {
        let four = V_math(weight[i / V_lanes]);
        return vec4<f32>(V_at(four, 0u), V_at(four, 1u), V_at(four, 2u), V_at(four, 3u));
    }
    return vec4<f32>(weight_one(i), weight_one(i + 1u), weight_one(i + 2u), weight_one(i + 3u));
}
