// The rows of a 4-bit linear layer are numbers, and so become the nibbles of its weight.
override ALIGNED: bool = true; // whether a column's nibbles begin at a word
override WHOLE: bool = true; // whether the depth is a multiple of 8

@group(0) @binding(0) var<storage, read> x: array<V>;
// include q4_layer

fn word_at(i: u32) -> u32 {
    return weight[i / 4u][i % 4u];
}

// Eight neighbours of a column, from place 8 * i of the depth on.
fn word(column: u32, i: u32) -> u32 {
    let byte = column * params.column_bytes + i * 4u;
    let low = word_at(byte / 4u);
    let shift = byte % 4u * 8u;
    if (ALIGNED || shift == 0u) {
        return low;
    }
    // The word after a tensor's last one holds nothing of the column, and is not there.
    return (low >> shift) | (word_at(min(byte / 4u + 1u, params.weight_words - 1u)) << (32u - shift));
}

fn in_order(eight: u32) -> u32 {
    if (HIGH_FIRST) {
        return ((eight & 0x0f0f0f0fu) << 4u) | ((eight >> 4u) & 0x0f0f0f0fu);
    }
    return eight;
}

// include q4_nibbles

fn x_one(i: u32) -> f32 {
    return V_at(V_math(x[i / V_lanes]), i % V_lanes);
}

// Four neighbours of a row of x; what lies past the depth is zero and not even read.
fn x_four(row: u32, k: u32) -> vec4<f32> {
    let i = row * params.depth + k;
    if (WHOLE || k + 4u <= params.depth) {
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
