// Weights of a 4-bit layer as halves, for matrix units.

// The largest number that weights of a column can be, by the scales of some of its groups.
fn largest_weight(column: u32, first: u32, last: u32, stride: u32) -> f32 {
    var most = 0.0;
    for (var i = first; i < last; i += stride) {
        let at = i * params.scale_stride + column;
        most = max(most, abs(scale_one(at)) * select(8.0, 128.0, BITS == 8u) + abs(minimum_one(at)));
    }
    return most;
}

// Eight neighbours of a column, as halves.
fn eight_of(word: u32, more: u32, scale: f32, minimum: f32) -> vec4<u32> {
    let scales = vec4<f32>(scale);
    let minima = vec4<f32>(minimum);
    return eight_halves(
        dequantized(low_codes(word), scales, minima), dequantized(high_codes(word, more), scales, minima),
    );
}
