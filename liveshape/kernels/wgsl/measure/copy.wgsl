// Memory bandwidth: every word is read once and written once.
// T: f32
override WG: u32 = 256;
override THREAD_VECTORS: u32 = 8; // vectors of a thread

struct Params {
    count: u32, // threads
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<T>>;
@group(0) @binding(1) var<storage, read> source: array<vec4<T>>;

fn each(i: u32) {
    for (var v = 0u; v < THREAD_VECTORS; v++) {
        out[v * params.count + i] = source[v * params.count + i];
    }
}

#include common/each
