// The squares of the row, which neighbours that hand each other values add up by themselves: nobody waits for anybody.
const NEIGHBOURS_OF_ROW: u32 = min(SUBGROUP, WG);

fn squares_of_row(lane: u32) -> f32 {
    var squares = 0.0;
    for (var i = lane % NEIGHBOURS_OF_ROW; i < groups(); i += NEIGHBOURS_OF_ROW) {
        squares += bitcast<f32>(x[i * 3u + 2u].w);
    }
    for (var step = 1u; step < NEIGHBOURS_OF_ROW; step *= 2u) {
        squares += subgroupShuffleXor(squares, step);
    }
    return squares;
}
