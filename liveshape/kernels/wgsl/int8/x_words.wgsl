// Four neighbours of x, which is bytes, of which only the first `left` count: the others meet zeros of a weight.
fn x_word(place: u32, left: u32) -> u32 {
    if (ALIGNED) {
        return x[place / 4u];
    }
    let shift = place % 4u * 8u;
    var word = x[place / 4u] >> shift;
    if (place % 4u + min(left, 4u) > 4u) {
        word |= x[place / 4u + 1u] << (32u - shift);
    }
    return word;
}
