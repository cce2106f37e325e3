// Rows of floats: the nibbles or bytes of the weight are dequantized.
// T: f32, f16
@group(0) @binding(0) var<storage, read> x: array<V>;
#include q4/layer
#include q4/weight_codes

fn x_one(i: u32) -> f32 {
    return V_at(V_math(x[i / V_lanes]), i % V_lanes);
}

// Four neighbours of a row of x; what lies past the depth is zero and not even read.
fn x_four(row: u32, k: u32) -> vec4<f32> {
    let i = row * params.depth + k;
    if (DEPTH_ALIGNED || k + 4u <= params.depth) {
        if (V_lanes == 4u) {
            let four = V_math(x[i / V_lanes]);
            return vec4<f32>(V_at(four, 0u), V_at(four, 1u), V_at(four, 2u), V_at(four, 3u));
        }
        return vec4<f32>(x_one(i), x_one(i + 1u), x_one(i + 2u), x_one(i + 3u));
    }
    var four = vec4<f32>();
    for (var lane = 0u; k + lane < params.depth; lane++) {
        four[lane] = x_one(i + lane);
    }
    return four;
}
