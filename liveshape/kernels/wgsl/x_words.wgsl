// Four neighbours of x, which is bytes; what lies behind the last one meets zeros of a weight.
fn x_word(place: u32) -> u32 {
    let shift = place % 4u * 8u;
    var word = x[place / 4u] >> shift;
    if (!ALIGNED && shift > 0u) {
        word |= x[place / 4u + 1u] << (32u - shift);
    }
    return word;
}
