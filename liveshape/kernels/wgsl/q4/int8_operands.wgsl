// Quantized rows, as quantization/quantize_group.wgsl leaves them: of 32 places of the depth the even ones, the odd
// ones, and a vector of floats: the step, what the nibbles' offset adds in steps, the zero point, and the sum of
// squares where the RMSNorm scale is still to be applied. Four places are one word of either factor, so dot4I8Packed
// takes four products at once, exactly.
@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
#include q4/layer
#include q4/nibble_bytes

fn place_of_row(row: u32, group: u32) -> u32 {
    return (min(row, params.rows - 1u) * groups() + group) * 3u;
}
