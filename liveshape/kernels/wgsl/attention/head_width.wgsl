// How many elements of a four exist; the constants let loops over whole heads unroll.
fn width_of(four: u32) -> u32 {
    return select(min(4u, HEAD_SIZE - four * 4u), 4u, HEAD_SIZE % 4u == 0u);
}

fn key_width_of(four: u32) -> u32 {
    return select(min(4u, max(KEY_SIZE, four * 4u) - four * 4u), 4u, KEY_SIZE == HEAD_SIZE && KEY_SIZE % 4u == 0u);
}

fn value_width_of(four: u32) -> u32 {
    return select(min(4u, max(VALUE_SIZE, four * 4u) - four * 4u), 4u, VALUE_SIZE == HEAD_SIZE && VALUE_SIZE % 4u == 0u);
}
