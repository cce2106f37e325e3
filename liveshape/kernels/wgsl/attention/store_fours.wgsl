// Four neighbours of a result at once: rows begin at a multiple of four.
fn store(place: u32, four: u32, value: vec4<f32>) {
    if (VALUE_SIZE == HEAD_SIZE || four * 4u < VALUE_SIZE) {
        out[place / 4u + four] = vec4<TOut>(value);
    }
}
