// Two layers of one input, whose columns are interleaved in the weight, so that four of them give two elements: a function
// of each pair, `gate_of`, which a composition adds (kernels/composition.py).
fn gated_of(column: u32, products: vec4<f32>) -> vec2<f32> {
    let last = params.columns - 1u;
    let first = vec2<f32>(with_bias(column, products.x), with_bias(min(column + 2u, last), products.z));
    let second = vec2<f32>(with_bias(column + 1u, products.y), with_bias(min(column + 3u, last), products.w));
    return gate_of(vec4<f32>(first, 0.0, 0.0), vec4<f32>(second, 0.0, 0.0)).xy;
}
