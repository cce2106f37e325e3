// Throughput of float multiply-adds: each iteration is 128 operations, in sixteen chains that wait for nobody else.
// T: f32, f16
override WG: u32 = 256;

struct Params {
    count: u32, // threads
    iterations: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<T>>;

fn each(i: u32) {
    let factor = vec4<T>(T(0.5) + T(f32(i & 3u) * 0.125));
    let more = vec4<T>(T(f32(i & 7u) * 0.0625));
    var a = more;
    var b = more + vec4<T>(T(1.0));
    var c = more + vec4<T>(T(2.0));
    var d = more + vec4<T>(T(3.0));
    for (var n = 0u; n < params.iterations; n++) {
        a = fma(a, factor, more);
        b = fma(b, factor, more);
        c = fma(c, factor, more);
        d = fma(d, factor, more);
        a = fma(a, factor, more);
        b = fma(b, factor, more);
        c = fma(c, factor, more);
        d = fma(d, factor, more);
        a = fma(a, factor, more);
        b = fma(b, factor, more);
        c = fma(c, factor, more);
        d = fma(d, factor, more);
        a = fma(a, factor, more);
        b = fma(b, factor, more);
        c = fma(c, factor, more);
        d = fma(d, factor, more);
    }
    out[i] = a + b + c + d;
}

#include common/each
