// Where a unit of reduction/across_threads.wgsl begins and ends among `params.count` elements. In PARTS units go in
// stages: those of the dispatch are parts of `params.span` elements, the same part of all units side by side.
#choice STAGE: whole, parts
// Elements that a thread adds up before it adds their sum to its own: rounding errors grow with that, not with a row.
const BLOCK: u32 = 32;

struct Part {
    unit: u32,
    first: u32,
    last: u32,
}

fn part_of(unit: u32, units: u32, count: u32) -> Part {
#if STAGE == parts
    let first = unit / units * params.span;
    return Part(unit % units, min(first, count), min(first + params.span, count));
#else
    return Part(min(unit, units - 1u), 0u, count);
#endif
}
