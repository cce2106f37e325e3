// The entry of a kernel whose threads, as reduction/across_threads.wgsl has them, reduce `params.units` of `params.count`
// elements: units of threads do so `each_part`, of which a unit has one, or where it is long `params.parts` of
// `params.share` elements. Those with the same place in their units lie side by side.
#include reduction/across_threads

struct Part {
    index: u32,
    unit: u32,
    first: u32,
    last: u32,
}

// All threads go through a kernel for their barriers, those of no part with the elements of another.
fn is_part(part: Part) -> bool {
    return part.index < params.units * params.parts;
}

fn each_group(group: u32, thread: u32) {
    let i = unit_of(group, thread);
    var part = Part(i, min(i, params.units - 1u), 0u, params.count);
    if (params.parts > 1u) {
        part.unit = i % params.units;
        part.first = i / params.units * params.share;
        part.last = min(part.first + params.share, params.count);
    }
    each_part(part, thread);
}

#include common/each_group
