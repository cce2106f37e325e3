// How 32 neighbours become bytes that have a step of their own.
// include row_steps

fn step_of(i: u32, largest: u32) -> Step {
    return step_by(largest);
}

fn in_bytes(values: vec4<f32>, step: Step) -> vec4<f32> {
    return round(values * step.inverse);
}
