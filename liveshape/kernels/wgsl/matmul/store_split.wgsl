// The partial sums of a split of the depth, each split as a batch of its own: combine_splits.wgsl has the epilogue.
fn store(batch: u32, row: u32, column: u32, sum: f32) {
    if (row < params.rows && column < params.columns) {
        out[(batch * params.rows + row) * params.columns + column] = sum;
    }
}
