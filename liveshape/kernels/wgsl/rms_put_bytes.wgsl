// The row as bytes, for 4-bit layers that want them: vectors are of four.
@group(0) @binding(0) var<storage, read_write> out: array<vec4<u32>>;

// include row_own_steps
// include row_group

fn normed(start: u32, i: u32, scale: f32) -> vec4<f32> {
    return second_look(start + i) * scale * V_math(weight[i]);
}

fn put_row(lane: u32, start: u32, scale: f32) {
    for (var i = lane * 8u; i < params.width; i += WG * 8u) {
        put_group((start + i) / 8u, Eight(
            normed(start, i, scale), normed(start, i + 1u, scale),
            normed(start, i + 2u, scale), normed(start, i + 3u, scale),
            normed(start, i + 4u, scale), normed(start, i + 5u, scale),
            normed(start, i + 6u, scale), normed(start, i + 7u, scale),
        ));
    }
}
