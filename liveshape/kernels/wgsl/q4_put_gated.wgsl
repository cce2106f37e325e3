// A gated unit of two 4-bit linear layers of one input.
@group(0) @binding(4) var<storage, read_write> out: array<TOut>;
@group(0) @binding(5) var<uniform> params: Params;

// include q4_gated

fn put_four(row: u32, column: u32, products: vec4<f32>) {
    if (row >= params.rows || column >= params.columns) {
        return;
    }
    let gated = gated_of(column, products);
    let i = row * (params.columns / 2u) + column / 2u;
    out[i] = TOut(gated.x);
    if (column + 2u < params.columns) {
        out[i + 1u] = TOut(gated.y);
    }
}
