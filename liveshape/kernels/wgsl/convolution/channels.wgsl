// What the kernels of a convolution share in which every output channel sees one input channel.
struct Params {
    count: u32, // of threads; of planes, where a subgroup has one
    fours: u32, // in a row of outputs
    channels: u32, // of the output
    multiple: u32, // output channels of an input channel
#include convolution/window_params
    low: f32,
    high: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<storage, read> weight: array<T>;
@group(0) @binding(3) var<storage, read> bias: array<T>;

#include common/clamped
