// The sums of a part of the depth, without more, for q4_combine to add to the others: rows are whole vectors.
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(5) var<uniform> params: Params;

fn put_four(row: u32, column: u32, products: vec4<f32>) {
    if (row < params.rows && column < params.columns) {
        out[(split * params.rows + row) * ((params.columns + 3u) / 4u) + column / 4u] = products;
    }
}
