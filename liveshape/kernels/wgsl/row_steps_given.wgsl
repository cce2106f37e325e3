// A row has one step and one zero point, which are given.
// TScale: f32, f16
@group(0) @binding(2) var<storage, read> scale: array<TScale>;
@group(0) @binding(3) var<storage, read> zero_point: array<u32>;
@group(0) @binding(4) var<uniform> params: Params;

// include affine
// include bytes
// include row_steps

fn step_of(i: u32, largest: u32) -> Step {
    let row = i / params.per_row;
    let size = f32(scale[row]);
    if (!is_number(bitcast<f32>(largest) * (1.0 / size))) {
        return without_number(largest);
    }
    return Step(size, 1.0 / size, f32(signed_byte(zero_point[row / 4u], row % 4u)));
}

fn in_byte(value: f32, step: Step) -> f32 {
    return in_steps(value, step.inverse, step.zero, -128.0, 127.0);
}

fn in_bytes(values: vec4<f32>, step: Step) -> vec4<f32> {
    return vec4<f32>(
        in_byte(values.x, step), in_byte(values.y, step), in_byte(values.z, step), in_byte(values.w, step),
    );
}
