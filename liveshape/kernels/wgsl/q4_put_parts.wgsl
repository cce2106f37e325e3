// The sums of a part of the depth, without more, for q4_combine to add to the others.
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

fn put(row: u32, column: u32, product: f32) {
    if (row < params.rows && column < params.columns) {
        out[(split * params.rows + row) * params.columns + column] = product;
    }
}

// include q4_put_each
