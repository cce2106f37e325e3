// Log-sum-exp that does not overflow (online softmax), as a Total of reduction/across_threads.wgsl.
const LOWEST: f32 = -3.4028234e38; // not -inf: the difference of two of them would be NaN
const EMPTY: Total = Total(LOWEST, 0.0);

alias Total = vec2<f32>; // (maximum m, sum of exp(x - m))

fn combine(a: Total, b: Total) -> Total {
    let maximum = max(a.x, b.x);
    return Total(maximum, a.y * exp(a.x - maximum) + b.y * exp(b.x - maximum));
}
