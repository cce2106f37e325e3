// The right factor [K, N] of a product in nibbles, eight to a word and offset by 8, its rows without gaps; a scale belongs
// to GROUP neighbours of a row and lies in [N / GROUP, K].
// TScale: f32, f16
override GROUP: u32 = 32;
override SCALE_STRIDE: u32 = 1; // at least K

@group(0) @binding(3) var<storage, read> weight: array<u32>;
@group(0) @binding(4) var<storage, read> scales: array<TScale>;
@group(0) @binding(5) var<uniform> params: Params;

// include q4_nibbles

fn scale_of(i: u32) -> f32 {
    return f32(scales[i % params.columns / GROUP * SCALE_STRIDE + i / params.columns]);
}

fn weight_one(i: u32) -> f32 {
    return (f32((weight[i / 8u] >> (i % 8u * 4u)) & 15u) - 8.0) * scale_of(i);
}

fn weight_four(i: u32) -> vec4<f32> {
    // Rows of a multiple of four: the four are of one row and one word.
    if (V_lanes == 4u && GROUP % 4u == 0u) {
        return four_of(weight[i / 8u] >> (i % 8u * 4u)) * scale_of(i);
    }
    return vec4<f32>(weight_one(i), weight_one(i + 1u), weight_one(i + 2u), weight_one(i + 3u));
}
