// Scales and zero points in tensors, the zero points of eight bits with a sign, four to a word.
// TScale: f32, f16
// include qparams_params
@group(0) @binding(3) var<storage, read> zeros: array<u32>;
@group(0) @binding(4) var<uniform> params: Params;

fn zero_at(place: u32) -> f32 {
    return f32(signed_byte(zeros[place / 4u], place % 4u));
}
