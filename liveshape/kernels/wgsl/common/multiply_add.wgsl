// Sums of products, each by one instruction and with one rounding wherever a device has that.
fn plus_dot(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

// sums + row * block
fn plus_product(sums: vec4<f32>, row: vec4<f32>, block: mat4x4<f32>) -> vec4<f32> {
    return vec4<f32>(
        plus_dot(sums.x, row, block[0]),
        plus_dot(sums.y, row, block[1]),
        plus_dot(sums.z, row, block[2]),
        plus_dot(sums.w, row, block[3]),
    );
}

// sums + rows * columns, each of these with each of those
fn plus_outer(sums: mat4x4<f32>, rows: vec4<f32>, columns: vec4<f32>) -> mat4x4<f32> {
    return mat4x4<f32>(
        fma(vec4<f32>(rows.x), columns, sums[0]),
        fma(vec4<f32>(rows.y), columns, sums[1]),
        fma(vec4<f32>(rows.z), columns, sums[2]),
        fma(vec4<f32>(rows.w), columns, sums[3]),
    );
}
