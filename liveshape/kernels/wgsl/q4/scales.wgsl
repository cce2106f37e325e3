// The weight of a 4-bit linear layer is [N, K] in nibbles, eight to a word, offset by 8, or in bytes with a sign; a scale
// belongs to GROUP neighbours of the depth of one column and lies in [K / GROUP, N], or in [K / GROUP, 2, N] with the
// minimum that is added to each of these.
// TScale: f32, f16
override BITS: u32 = 4; // of a weight, 4 or 8
override MINIMA: bool = false;
override HIGH_FIRST: bool = false; // whether even places of the depth lie in the high nibbles
override SCALES_ALIGNED: bool = true; // whether the scales of four columns begin at a vector
override GROUP: u32 = 32; // neighbours of the depth with one scale

fn scale_one(i: u32) -> f32 {
    return f32(scales[i / 4u][i % 4u]);
}

// The minimum that goes with a scale, if there are such.
fn minimum_one(i: u32) -> f32 {
    if (MINIMA) {
        return scale_one(i + params.scale_stride / 2u);
    }
    return 0.0;
}

fn four_from(i: u32, column: u32) -> vec4<f32> {
    if (SCALES_ALIGNED) {
        return vec4<f32>(scales[i / 4u]);
    }
    let most = params.columns - 1u - column;
    return vec4<f32>(
        scale_one(i), scale_one(i + min(1u, most)), scale_one(i + min(2u, most)), scale_one(i + min(3u, most)),
    );
}

// The scales of four neighbouring columns at a place of the depth.
fn scale_four(column: u32, k: u32) -> vec4<f32> {
    return four_from(k / GROUP * params.scale_stride + column, column);
}

// And their minima, if there are such.
fn minimum_four(column: u32, k: u32) -> vec4<f32> {
    if (MINIMA) {
        return four_from(k / GROUP * params.scale_stride + params.scale_stride / 2u + column, column);
    }
    return vec4<f32>();
}
