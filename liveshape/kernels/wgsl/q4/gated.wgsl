// SwiGLU: columns of the gate and of what it gates are interleaved in the weight, so that four of them give two
// elements.
#include elementwise/special_functions

fn gated_of(column: u32, products: vec4<f32>) -> vec2<f32> {
    let last = params.columns - 1u;
    let gate = vec4<f32>(with_bias(column, products.x), with_bias(min(column + 2u, last), products.z), 0.0, 0.0);
    let up = vec2<f32>(with_bias(column + 1u, products.y), with_bias(min(column + 3u, last), products.w));
    return (gate * (1.0 / (1.0 + exponential(-gate)))).xy * up;
}
