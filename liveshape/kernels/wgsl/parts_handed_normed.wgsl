// What a neighbour has found: sums and squares.
fn handed(total: Total, step: u32) -> Total {
    return Total(subgroupShuffleXor(total.sums, step), subgroupShuffleXor(total.squares, step));
}
