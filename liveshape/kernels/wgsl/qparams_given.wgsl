// One scale and one zero point for everything, which the program names.
struct Params {
    count: u32, // words of four
    scale: f32,
    inverse: f32,
    zero: f32,
    low: f32, // the range of the integers
    high: f32,
}
@group(0) @binding(2) var<uniform> params: Params;

fn place_of(i: u32) -> u32 {
    return 0u;
}

fn scale_at(place: u32) -> f32 {
    return params.scale;
}

fn inverse_at(place: u32) -> f32 {
    return params.inverse;
}

fn zero_at(place: u32) -> f32 {
    return params.zero;
}
