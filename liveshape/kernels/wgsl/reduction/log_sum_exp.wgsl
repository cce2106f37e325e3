// Log-sum-exp that does not overflow (online softmax): carried is the maximum m, and the sum of exp(x - m).
const LOWEST: f32 = -3.4028234e38; // not -inf: the difference of two of them would be NaN

alias Total = vec2<f32>;

fn identity() -> Total {
    return Total(LOWEST, 0.0);
}

fn combine(a: Total, b: Total) -> Total {
    let maximum = max(a.x, b.x);
    return Total(maximum, a.y * exp(a.x - maximum) + b.y * exp(b.x - maximum));
}

#include reduction/across_threads
