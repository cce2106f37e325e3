// The product of a 4-bit linear layer, rounded as by an operator of its own, and something else that is added to it.
@group(0) @binding(4) var<storage, read> residual: array<TOut>;
@group(0) @binding(5) var<storage, read_write> out: array<TOut>;
@group(0) @binding(6) var<uniform> params: Params;

fn put_onto(row: u32, column: u32, product: f32, other: f32) {
    if (row < params.rows && column < params.columns) {
        out[row * params.columns + column] = TOut(other + f32(TOut(with_bias(column, product))));
    }
}

fn put(row: u32, column: u32, product: f32) {
    if (row < params.rows && column < params.columns) {
        put_onto(row, column, product, f32(residual[row * params.columns + column]));
    }
}

// include q4_put_each
