// The product of a 4-bit linear layer of one row, and something else that is added to it. The sum is a result, and once
// more as bytes for layers that read its RMS norm: times the weight of that, and with its squares, from which the layers
// find the factor that is missing. Columns are a multiple of 32.
@group(0) @binding(4) var<storage, read> residual: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> total: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(8) var<uniform> params: Params;

// include row_own_steps
// include row_group
