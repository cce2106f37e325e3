// Copies pages within a pool, one after the other. A thread has the same element of every page, so a page may be read
// by one copy and written by a later one without a barrier between them.
// T: f32, f16, i32
override WG: u32 = 64;

struct Params {
    count: u32, // elements of a page
    copies: u32,
}
@group(0) @binding(0) var<storage, read_write> pool: array<T>;
@group(0) @binding(1) var<storage, read> copies: array<vec2<i32>>; // (source, target)

fn each(i: u32) {
    for (var copy = 0u; copy < params.copies; copy++) {
        let pages = vec2<u32>(copies[copy]);
        pool[pages.y * params.count + i] = pool[pages.x * params.count + i];
    }
}

#include common/each
