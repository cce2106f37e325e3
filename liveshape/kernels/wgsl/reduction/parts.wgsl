// What a unit of reduction/across_threads.wgsl has of the `count` elements of one of `units`: all, or where these are long
// one of `params.parts` of `params.share` elements, of which those with the same place lie side by side.
#include reduction/across_threads

struct Part {
    unit: u32,
    first: u32,
    last: u32,
}

fn part_of(i: u32, units: u32, count: u32) -> Part {
    if (params.parts > 1u) {
        let first = i / units * params.share;
        return Part(i % units, first, min(first + params.share, count));
    }
    return Part(min(i, units - 1u), 0u, count);
}
