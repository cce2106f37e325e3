// What the kernels of 4-bit linear layers share: the weight is [N, K] in nibbles, eight to a word, offset by 8;
// a scale belongs to GROUP neighbours of the depth of one column and lies in [K / GROUP, N]. Outputs come last: where
// the four sums of a row's neighbouring columns are put is for an include of its own to say.
override HIGH_FIRST: bool = false; // whether even places of the depth lie in the high nibbles
override ALIGNED: bool = true; // whether a column's nibbles begin at a word
override WHOLE: bool = true; // whether the depth is a multiple of 8
override SCALE_FOURS: bool = true; // whether the scales of four columns begin at a vector
override BIAS: bool = false;
override GROUP: u32 = 32; // neighbours of the depth with one scale

struct Params {
    rows: u32, // M
    columns: u32, // N
    depth: u32, // K
    column_bytes: u32, // of the weight
    weight_words: u32,
    scale_stride: u32,
// include q4_put_params
}
@group(0) @binding(0) var<storage, read> x: array<V>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scales: array<vec4<TScale>>;
@group(0) @binding(3) var<storage, read> bias: array<TBias>;

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

fn scale_one(i: u32) -> f32 {
    return f32(scales[i / 4u][i % 4u]);
}

// The scales of four neighbouring columns at a place of the depth.
fn scale_four(column: u32, k: u32) -> vec4<f32> {
    let i = k / GROUP * params.scale_stride + column;
    if (SCALE_FOURS) {
        return vec4<f32>(scales[i / 4u]);
    }
    let most = params.columns - 1u - column;
    return vec4<f32>(
        scale_one(i), scale_one(i + min(1u, most)), scale_one(i + min(2u, most)), scale_one(i + min(3u, most)),
    );
}

fn with_bias(column: u32, product: f32) -> f32 {
    if (BIAS) {
        return product + f32(bias[column]);
    }
    return product;
}
