// Activations of eight bits: sums are exact integers, and the zero point is taken off all of the depth at once.
// TScale: f32, f16
// TBias: f32, f16
struct Params {
    rows: u32,
    columns: u32,
    depth: u32,
    x_zero: i32,
    x_scale: f32,
    inverse: f32, // of the output's scale
    zero: f32,
}
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> weight: array<u32>;
@group(0) @binding(3) var<storage, read> sums: array<i32>; // of each column of the weight
@group(0) @binding(4) var<storage, read> scales: array<TScale>;
@group(0) @binding(5) var<storage, read> bias: array<TBias>;
@group(0) @binding(6) var<uniform> params: Params;

alias Four = u32;
alias Sum = i32;

// include int8_rescale

// include x_words

fn x_four(place: u32, left: u32) -> Four {
    return x_word(place, left);
}

fn times(four: Four, word: u32) -> Sum {
    return dot4I8Packed(four, word);
}

fn value_of(sum: Sum, column: u32) -> f32 {
    return rescaled(sum - params.x_zero * sums[column], column, f32(scales[column]));
}
