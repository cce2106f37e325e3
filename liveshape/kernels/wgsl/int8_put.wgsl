// Four neighbours of the output as integers of eight bits: one word.
@group(0) @binding(0) var<storage, read_write> out: array<u32>;

// include affine

fn put_four(first: u32, elements: u32, values: vec4<f32>) {
    var codes = vec4<i32>();
    for (var k = 0u; k < 4u; k++) {
        codes[k] = code_of(values[k], params.inverse, params.zero, -128.0, 127.0);
    }
    out[first / 4u] = packed(codes);
}
