// Four complex numbers are a matrix: a column of real parts, and one of imaginary parts.
// From memory, where the parts of a number are neighbours.
fn complex_four(low: vec4<f32>, high: vec4<f32>) -> mat2x4<f32> {
    return mat2x4<f32>(vec4<f32>(low.xz, high.xz), vec4<f32>(low.yw, high.yw));
}

// The number at a place, of the two in a vector, four times.
fn complex_all(two: vec4<f32>, place: u32) -> mat2x4<f32> {
    let part = select(two.xy, two.zw, (place & 1u) == 1u);
    return mat2x4<f32>(part.xxxx, part.yyyy);
}

// As they lie in memory.
fn complex_halves(z: mat2x4<f32>) -> mat2x4<f32> {
    return mat2x4<f32>(z[0].x, z[1].x, z[0].y, z[1].y, z[0].z, z[1].z, z[0].w, z[1].w);
}

fn complex_product(a: mat2x4<f32>, b: mat2x4<f32>) -> mat2x4<f32> {
    return mat2x4<f32>((a[0] * b[0]) - (a[1] * b[1]), (a[0] * b[1]) + (a[1] * b[0]));
}

// 1 / (unit * scale), where the larger part of unit is one: no square overflows.
fn complex_reciprocal(z: mat2x4<f32>) -> mat2x4<f32> {
    let scale = max(abs(z[0]), abs(z[1]));
    let x = z[0] / scale;
    let y = z[1] / scale;
    let square = x * x + y * y;
    return mat2x4<f32>(x / square / scale, -y / square / scale);
}

fn complex_quotient(a: mat2x4<f32>, b: mat2x4<f32>) -> mat2x4<f32> {
    let scale = max(abs(b[0]), abs(b[1]));
    let x = b[0] / scale;
    let y = b[1] / scale;
    let square = x * x + y * y;
    let product = complex_product(mat2x4<f32>(a[0] / scale, a[1] / scale), mat2x4<f32>(x, -y));
    return mat2x4<f32>(product[0] / square, product[1] / square);
}

fn complex_of_angle(magnitude: vec4<f32>, radians: vec4<f32>) -> mat2x4<f32> {
    return mat2x4<f32>(magnitude * cosine(radians), magnitude * sine(radians));
}
