// Four neighbours of the output as floats.
// TOut: f32, f16
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;

fn put_four(first: u32, elements: u32, values: vec4<f32>) {
    for (var k = 0u; k < 4u; k++) {
        if (first + k < elements) {
            out[first + k] = TOut(values[k]);
        }
    }
}
