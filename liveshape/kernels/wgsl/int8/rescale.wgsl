// Dequantizes a sum of products of integers: one scale of the activations, one of each column of the weight.
override BIAS: bool = false;
override RELU: bool = false;

fn rescaled(sum: i32, column: u32, scale: f32) -> f32 {
    var value = f32(sum) * (params.x_scale * scale);
    if (BIAS) {
        value += f32(bias[column]);
    }
    return select(value, max(value, 0.0), RELU);
}
