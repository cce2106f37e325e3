@group(0) @binding(2) var<storage, read> b: array<f32>;

fn right_at(i: u32) -> vec2<f32> {
    return vec2<f32>(b[i], 0.0);
}
