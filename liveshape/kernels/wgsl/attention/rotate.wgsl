// A pair of elements of a head, rotated by the angles at two places of the tables.
fn rotated(pair: vec2<f32>, angle: u32, other: u32) -> vec2<f32> {
    let cosines = vec2<f32>(f32(cosine[angle]), f32(cosine[other]));
    let sines = vec2<f32>(f32(sine[angle]), f32(sine[other]));
    return pair * cosines + vec2<f32>(-pair.y, pair.x) * sines;
}

#include attention/slots
#if POSITIONS == table
// The row of the tables that a row is rotated by: these are of the rows themselves, or of all positions.
fn angle_row(row: u32) -> u32 {
    if (INTERLEAVED) {
        return row;
    }
    return min(u32(max(row_table[row].x, 0)), params.positions - 1u);
}
#endif
