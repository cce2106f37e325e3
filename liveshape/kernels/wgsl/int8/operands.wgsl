// The activations of an 8-bit linear layer, how they are multiplied with a weight, and what the sums become.
#choice INPUT: int8_input, float_input
#if INPUT == float_input
// Activations that are floats: the integers of the weight are multiplied as floats, and their scale comes last.
// T: f32, f16
// TScale: f32, f16
struct Params {
    rows: u32,
    columns: u32,
    depth: u32,
}
@group(0) @binding(1) var<storage, read> x: array<V>;
@group(0) @binding(2) var<storage, read> weight: array<u32>;
@group(0) @binding(3) var<storage, read> scales: array<TScale>;

alias Four = vec4<f32>;
alias Sum = f32;

// What lies beside the depth may be no number, so it is not read.
fn x_four(place: u32, left: u32) -> Four {
    var four = vec4<f32>();
    if (V_lanes == 4u) {
        let vector = V_math(x[place / V_lanes]);
        four = vec4<f32>(V_at(vector, 0u), V_at(vector, 1u), V_at(vector, 2u), V_at(vector, 3u));
    } else {
        for (var i = 0u; i < min(left, 4u); i++) {
            four[i] = V_at(V_math(x[place + i]), 0u);
        }
    }
    return four;
}

fn times(four: Four, word: u32) -> Sum {
    return dot(four, vec4<f32>(signed_bytes(word)));
}

fn value_of(sum: Sum, column: u32) -> f32 {
    return sum * f32(scales[column]);
}
#else
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

alias Four = u32;
alias Sum = i32;

#include int8/rescale

#include int8/x_words

fn x_four(place: u32, left: u32) -> Four {
    return x_word(place, left);
}

fn times(four: Four, word: u32) -> Sum {
    return dot4I8Packed(four, word);
}

fn value_of(sum: Sum, column: u32) -> f32 {
    return rescaled(sum - params.x_zero * sums[column], column, f32(scales[column]));
}
#endif
