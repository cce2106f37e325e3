// A pair of elements of a head, rotated by the angles at two places of the tables.
fn rotated(pair: vec2<f32>, angle: u32, other: u32) -> vec2<f32> {
    let cosines = vec2<f32>(f32(cosine[angle]), f32(cosine[other]));
    let sines = vec2<f32>(f32(sine[angle]), f32(sine[other]));
    return pair * cosines + vec2<f32>(-pair.y, pair.x) * sines;
}
