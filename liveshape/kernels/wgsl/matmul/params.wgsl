// The Params of all products.
    batch: u32,
    rows: u32, // M
    columns: u32, // N
    depth: u32, // K
    x_stride: u32, // elements between the left factors of a batch; 0 where they are one
    weight_stride: u32,
    addend_batch_stride: u32,
    addend_row_stride: u32,
    addend_column_stride: u32,
    alpha: f32,
    beta: f32,
    low: f32,
    high: f32,
