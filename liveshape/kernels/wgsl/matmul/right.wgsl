// Neighbours of the right factor, one or four at a time.
#choice WEIGHT: floats, nibbles, halves, split
// Of TRANSPOSED factors: how far lines of the depth are apart, and how far a place of one is from where it begins.
#if WEIGHT == halves
fn line_step() -> u32 {
    return 8u;
}

fn along_line(k: u32) -> u32 {
    return k / 8u * 8u * params.columns + k % 8u;
}
#else
fn line_step() -> u32 {
    return params.depth;
}

fn along_line(k: u32) -> u32 {
    return k;
}
#endif

#if WEIGHT == nibbles
#include q4/nibbles

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
#elif WEIGHT == halves
fn weight_one(i: u32) -> f32 {
    return weight_four(i / 4u * 4u)[i % 4u];
}

fn weight_four(i: u32) -> vec4<f32> {
    let four = weight[i / 4u];
    return vec4<f32>(unpack2x16float(four.x), unpack2x16float(four.y));
}
#elif WEIGHT == split
fn weight_one(i: u32) -> f32 {
    return weight_four(i / 4u * 4u)[i % 4u];
}

// Its factor at once: a column divided by it may be so large that its products are infinite.
fn weight_four(i: u32) -> vec4<f32> {
    let place = i / 16u * 8u + i % 16u / 4u;
    let high = weight[place];
    let low = weight[place + 4u];
    let four = vec4<f32>(unpack2x16float(high.x), unpack2x16float(high.y))
        + vec4<f32>(unpack2x16float(low.x), unpack2x16float(low.y));
    return four * factors[i / params.depth];
}
#else
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
#endif

fn weight_within(i: u32, count: u32) -> vec4<f32> {
    if (count >= 4u) {
        return weight_four(i);
    }
    var four = vec4<f32>();
    for (var lane = 0u; lane < count; lane++) {
        four[lane] = weight_one(i + lane);
    }
    return four;
}

// The same where vectors are whole: then no load depends on a condition.
fn right_vector(place: u32, count: u32) -> vec4<f32> {
    if (V_lanes == 4u) {
        return weight_four(place);
    }
    return weight_within(place, count);
}
