// The rows of x as they are.
fn take_row(lane: u32) {
}

fn row_four(row: u32, k: u32) -> vec4<f32> {
    return x_four(row, k);
}
