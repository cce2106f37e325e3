// Four neighbours of a weight of bytes, of which only the first `left` count: the others are zero.
override ALIGNED: bool = true; // vec4s begin with a word and never end early

fn weight_word(place: u32, left: u32) -> u32 {
    if (ALIGNED) {
        return weight[place / 4u];
    }
    let shift = place % 4u * 8u;
    var word = weight[place / 4u] >> shift;
    if (place % 4u + min(left, 4u) > 4u) {
        word |= weight[place / 4u + 1u] << (32u - shift);
    }
    return first_bytes(word, left);
}
