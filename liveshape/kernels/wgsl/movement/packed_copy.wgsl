// A copy along strides of elements that lie four to a word: of whole WORDS, which strides then count, or to all of out,
// where a thread finds the four elements of a word wherever they lie.
override WG: u32 = 64;
override WORDS: bool = true;

struct Params {
    count: u32, // words
    elements: u32,
    rank: u32,
    source_start: i32,
    target_start: i32,
    sizes: array<vec4<u32>, 2>,
    source_strides: array<vec4<i32>, 2>,
    target_strides: array<vec4<i32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<uniform> params: Params;

#include movement/walk_both

fn each(i: u32) {
    if (WORDS) {
        let offsets = walk_both(i);
        out[u32(offsets.y)] = x[u32(offsets.x)];
    } else {
        var word = 0u;
        for (var k = 0u; k < 4u; k++) {
            let place = u32(walk_both(min(4u * i + k, params.elements - 1u)).x);
            word |= ((x[place / 4u] >> (place % 4u * 8u)) & 0xffu) << (k * 8u);
        }
        out[i] = word;
    }
}

#include common/each_in_runs
