// Zero points of eight bits: four rows are one word.
@group(0) @binding(1) var<storage, read_write> zero_point: array<u32>;

// include bytes

fn put_zeros(first: u32, zeros: vec4<f32>) {
    zero_point[first / 4u] = packed(vec4<i32>(zeros));
}
