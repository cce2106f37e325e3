// The Params of a convolution between integers of eight bits: its window, and how sums become codes.
    size: vec2<u32>, // height and width
    out_size: vec2<u32>,
    kernel: vec2<u32>,
    stride: vec2<u32>,
    padding: vec2<u32>,
    dilation: vec2<u32>,
    x_zero: i32,
    x_scale: f32,
    inverse: f32, // of the output's scale
    zero: f32,
