// Zero points as a number each.
// TZero: i32, f32, f16
@group(0) @binding(1) var<storage, read_write> zero_point: array<TZero>;

fn put_zeros(first: u32, zeros: vec4<f32>) {
    for (var j = 0u; j < ROWS; j++) {
        if (first + j < params.units) {
            zero_point[first + j] = TZero(zeros[j]);
        }
    }
}
