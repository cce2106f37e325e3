// The Params of a window that slides over an input.
    extents: vec4<u32>, // of the input: depth, height, width, and all of them
    outputs: vec4<u32>,
    kernel: vec4<u32>,
    stride: vec4<u32>,
    padding: vec4<u32>,
    dilation: vec4<u32>,
