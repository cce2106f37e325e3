// Rows of halves for matrix units lie in blocks of 64: eight neighbours of the depth of these are neighbours in memory,
// so that a tile is read in whole lines and staged without bank conflicts. Behind the last block each row
// has a vector of what it was divided by.
const BLOCK_ROWS: u32 = 64;

fn half_place(row: u32, eight: u32, eights: u32) -> u32 {
    return (row / BLOCK_ROWS * eights + eight) * BLOCK_ROWS + row % BLOCK_ROWS;
}

// Where the factors of rows begin.
fn first_factor(rows: u32, eights: u32) -> u32 {
    return (rows + BLOCK_ROWS - 1u) / BLOCK_ROWS * BLOCK_ROWS * eights;
}
