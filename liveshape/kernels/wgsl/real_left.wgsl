@group(0) @binding(1) var<storage, read> a: array<f32>;

fn left_at(i: u32) -> vec2<f32> {
    return vec2<f32>(a[i], 0.0);
}
