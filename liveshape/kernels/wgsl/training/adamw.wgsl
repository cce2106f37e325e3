// One step of AdamW in place: the weight decays by itself, then goes against the moments of its gradient.
// T: f32, f16
// TMoment: f32, f16
// TGradient: f32, f16
override WG: u32 = 64;

struct Params {
    count: u32, // of vec4s
    decay: f32, // what is left of a weight
    kept: vec2<f32>, // of the moments
    taken: vec2<f32>, // of the gradient and of its square
    correction: vec2<f32>, // of the bias of moments that began at zero
    rate: f32,
    eps: f32,
}
@group(0) @binding(0) var<storage, read_write> weight: array<vec4<T>>;
@group(0) @binding(1) var<storage, read_write> first: array<vec4<TMoment>>;
@group(0) @binding(2) var<storage, read_write> second: array<vec4<TMoment>>;
@group(0) @binding(3) var<storage, read> gradient: array<vec4<TGradient>>;

fn each(i: u32) {
    let slope = vec4<f32>(gradient[i]);
    let mean = vec4<f32>(first[i]) * params.kept.x + slope * params.taken.x;
    let square = vec4<f32>(second[i]) * params.kept.y + slope * slope * params.taken.y;
    let way = (mean / params.correction.x) / (sqrt(square / params.correction.y) + params.eps);
    weight[i] = vec4<T>(vec4<f32>(weight[i]) * params.decay - params.rate * way);
    first[i] = vec4<TMoment>(mean);
    second[i] = vec4<TMoment>(square);
}

#include common/each_in_runs
