// Which scale and zero point belong to an element: those at its place along `strides`.
struct Params {
    count: u32, // words of four
    elements: u32,
    rank: u32,
    low: f32, // the range of the integers
    high: f32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}
@group(0) @binding(2) var<storage, read> scales: array<TScale>;

// include walk

fn place_of(i: u32) -> u32 {
    return walk(min(i, params.elements - 1u));
}

fn scale_at(place: u32) -> f32 {
    return f32(scales[place]);
}

fn inverse_at(place: u32) -> f32 {
    return 1.0 / scale_at(place);
}
