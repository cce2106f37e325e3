// Weights of a 4-bit layer as halves, for matrix units.

// The largest number that weights of a column can be, by the scales of some of its groups.
fn largest_weight(column: u32, first: u32, last: u32, stride: u32) -> f32 {
    var most = 0.0;
    for (var i = first; i < last; i += stride) {
        var bound = abs(scale_one(i * params.scale_stride + column)) * select(8.0, 128.0, BITS == 8u);
        if (MINIMA) {
            bound += abs(scale_one(i * params.scale_stride + params.scale_stride / 2u + column));
        }
        most = max(most, bound);
    }
    return most;
}

// Eight neighbours of a column in a word, as halves.
fn eight_nibbles(bytes: u32, scale: vec4<f32>, minimum: vec4<f32>) -> vec4<u32> {
    let word = in_order(bytes);
    return eight_halves(
        dequantized(four_of(word), scale, minimum), dequantized(four_of(word >> 16u), scale, minimum),
    );
}
