// A gated unit of two 4-bit linear layers of one input: columns of the gate and of what it gates take turns in the weight.
// include special_functions
// include unary_functions
override OP: u32 = SIGMOID;

@group(0) @binding(4) var<storage, read_write> out: array<TOut>;
@group(0) @binding(5) var<uniform> params: Params;

fn put_four(row: u32, column: u32, products: vec4<f32>) {
    if (row >= params.rows || column >= params.columns) {
        return;
    }
    let last = params.columns - 1u;
    let gate = vec4<f32>(with_bias(column, products.x), with_bias(min(column + 2u, last), products.z), 0.0, 0.0);
    let up = vec2<f32>(with_bias(column + 1u, products.y), with_bias(min(column + 3u, last), products.w));
    let gated = (gate * of_floats(gate, vec4<f32>())).xy * up;
    let i = row * (params.columns / 2u) + column / 2u;
    out[i] = TOut(gated.x);
    if (column + 2u < params.columns) {
        out[i + 1u] = TOut(gated.y);
    }
}
