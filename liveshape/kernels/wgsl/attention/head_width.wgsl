// How many elements of a four exist; the constant lets loops over whole heads unroll.
fn width_of(four: u32) -> u32 {
    return select(min(4u, HEAD_SIZE - four * 4u), 4u, HEAD_SIZE % 4u == 0u);
}
