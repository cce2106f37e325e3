// The rows of a 4-bit linear layer are bytes, as quantization/quantize_group.wgsl leaves them: of 32 places of the depth the even ones, the
// odd ones, and a vector of floats: the step, what the nibbles' offset adds in steps, the zero point, and squares where a
// norm is not done yet. Four places are one word of either factor, so a dot product of words takes four products at once,
// exactly.
@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
#include q4/layer
#include q4/nibble_bytes
