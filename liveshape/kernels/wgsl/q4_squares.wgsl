// The squares of the row, which the workgroup adds up.
// include row_total

fn squares_of_row(lane: u32) -> f32 {
    var squares = 0.0;
    for (var i = lane; i < groups(); i += WG) {
        squares += bitcast<f32>(x[i * 3u + 2u].w);
    }
    return row_total(lane, squares);
}
