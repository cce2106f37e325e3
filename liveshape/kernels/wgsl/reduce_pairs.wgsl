// The parts of complex numbers, each by itself.
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
alias TIn = f32;
alias TOut = f32;
alias TOut_math = f32;
