// include q4_expect

// Each thread of a workgroup may have the sums of a unit, four columns of a row, to put: the i-th of all rows.
fn put_unit(lane: u32, i: u32, place: u32, has: bool, sums: vec4<f32>) {
    let fours = (params.columns + 3u) / 4u;
    if (has && i < params.rows * fours) {
        put_expected(i / fours, i % fours * 4u, sums);
    }
}
