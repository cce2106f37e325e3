// 32 neighbours have a step of their own.
@group(0) @binding(2) var<uniform> params: Params;

// include row_steps

fn step_of(i: u32, largest: u32) -> Step {
    return step_by(largest);
}

fn in_bytes(values: vec4<f32>, step: Step) -> vec4<f32> {
    return round(values * step.inverse);
}
