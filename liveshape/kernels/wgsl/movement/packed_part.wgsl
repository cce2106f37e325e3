// A copy along strides into a part of out, whose elements lie four to a word: a thread has one word of out, finds which
// of its elements are in that part, and leaves the others as they are. Dimensions go from the widest stride in the
// target to the narrowest, and none reaches into the next one.
override WG: u32 = 64;

struct Params {
    count: u32, // words, from that of target_start on
    rank: u32,
    source_start: i32,
    target_start: i32,
    sizes: array<vec4<u32>, 2>,
    source_strides: array<vec4<i32>, 2>,
    target_strides: array<vec4<i32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;

const INVALID = 0xffffffffu;

// The element of x that goes to an element of out.
fn origin(element: i32) -> u32 {
    var rest = element - params.target_start;
    if (rest < 0) {
        return INVALID;
    }
    var place = params.source_start;
    for (var dim = 0u; dim < params.rank; dim++) {
        let stride = params.target_strides[dim >> 2u][dim & 3u];
        let step = rest / stride;
        if (step >= i32(params.sizes[dim >> 2u][dim & 3u])) {
            return INVALID;
        }
        rest -= step * stride;
        place += step * params.source_strides[dim >> 2u][dim & 3u];
    }
    return select(INVALID, u32(place), rest == 0);
}

fn each(i: u32) {
    let at = u32(params.target_start) / 4u + i;
    var word = out[at];
    for (var k = 0u; k < 4u; k++) {
        let place = origin(i32(4u * at + k));
        if (place != INVALID) {
            let shift = k * 8u;
            word = (word & ~(0xffu << shift)) | (((x[place / 4u] >> (place % 4u * 8u)) & 0xffu) << shift);
        }
    }
    out[at] = word;
}

#include common/each_in_runs
