@group(0) @binding(1) var<storage, read> a: array<vec2<f32>>;

fn left_at(i: u32) -> vec2<f32> {
    return a[i];
}
