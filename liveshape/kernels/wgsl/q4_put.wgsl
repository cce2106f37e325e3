// The product of one 4-bit linear layer.
@group(0) @binding(4) var<storage, read_write> out: array<TOut>;
@group(0) @binding(5) var<uniform> params: Params;

fn put(row: u32, column: u32, product: f32) {
    if (row < params.rows && column < params.columns) {
        out[row * params.columns + column] = TOut(with_bias(column, product));
    }
}

// include q4_put_each
