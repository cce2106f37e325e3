// out = the magnitude of complex numbers, or their ANGLE; four elements a thread.
#include elementwise/special_functions
override WG: u32 = 64;
override ANGLE: bool = false;

struct Params {
    count: u32, // vectors
    elements: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec2<f32>>;
@group(0) @binding(2) var<uniform> params: Params;

fn each(i: u32) {
    var real = vec4<f32>();
    var imaginary = vec4<f32>();
    for (var k = 0u; k < 4u; k++) {
        let z = x[min((4u * i) + k, params.elements - 1u)];
        real[k] = z.x;
        imaginary[k] = z.y;
    }
    if (ANGLE) {
        out[i] = arc_tangent_of_two(imaginary, real);
    } else {
        out[i] = hypotenuse(real, imaginary);
    }
}

#include common/each_in_runs
