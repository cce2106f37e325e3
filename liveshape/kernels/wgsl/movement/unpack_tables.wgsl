// The tables of a step of many sequences, which come as one array: they lie one behind the other, and so do threads. The
// token of a row is the given one, or, where its source is not negative, one that was sampled in the step before.
override WG: u32 = 64;

struct Params {
    count: u32, // of all, but for the sources
    rows: u32,
    wanted: u32,
    units: u32,
    settings: u32,
    sampled: u32, // tokens of the step before
}
@group(0) @binding(0) var<storage, read_write> tokens: array<i32>;
@group(0) @binding(1) var<storage, read_write> places: array<i32>;
@group(0) @binding(2) var<storage, read_write> wanted: array<i32>;
@group(0) @binding(3) var<storage, read_write> units: array<i32>;
@group(0) @binding(4) var<storage, read_write> settings: array<i32>;
@group(0) @binding(5) var<storage, read_write> block_table: array<i32>;
@group(0) @binding(6) var<storage, read> packed: array<i32>;
@group(0) @binding(7) var<storage, read> previous: array<i32>;

fn each(i: u32) {
    let value = packed[params.rows + i];
    if (i < params.rows) {
        if (value < 0) {
            tokens[i] = packed[i];
        } else {
            tokens[i] = previous[min(u32(value), params.sampled - 1u)];
        }
        return;
    }
    var sizes = array<u32, 4>(2u * params.rows, params.wanted, params.units, params.settings);
    var place = i - params.rows;
    var table = 0u;
    for (; table < 4u && place >= sizes[table]; table++) {
        place -= sizes[table];
    }
    switch (table) {
        case 0u: { places[place] = value; }
        case 1u: { wanted[place] = value; }
        case 2u: { units[place] = value; }
        case 3u: { settings[place] = value; }
        default: { block_table[place] = value; }
    }
}

#include common/each
