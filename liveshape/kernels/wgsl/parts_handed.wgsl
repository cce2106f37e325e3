// What a neighbour has found: a number or a vector.
fn handed(total: Total, step: u32) -> Total {
    return subgroupShuffleXor(total, step);
}
