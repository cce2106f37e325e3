// The row is taken as it is.
fn taken(i: u32) -> vec4<f32> {
    return vec4<f32>(x[i]);
}

fn squares_of(i: u32) -> f32 {
    return 0.0;
}

// What the sums are to be multiplied with; what the workgroup wrote before is there after.
fn factor_of(lane: u32, squares: f32) -> f32 {
    workgroupBarrier();
    return 1.0;
}
