// out[pick, :] = the row index[pick] of a table of integers of BITS bits, some to a byte, less the zero points of its
// groups and times their scales, or times these and more by the minima of its groups; an index outside of the table
// gives `invalid` and reads nothing.
// composable: each element is stored once.
// T: f32, f16
// TScale: f32, f16
override WG: u32 = 64;
override BITS: u32 = 4; // 2, 4 or 8
override HIGH_FIRST: bool = false; // whether the first of the integers of a byte lies in its high bits
override ZEROS: bool = false; // whether there are zero points
override MINIMA: bool = false; // or minima in their place

struct Params {
    count: u32,
    width: u32,
    size: i32, // rows of the table
    row_bytes: u32,
    group: u32,
    row_scales: u32,
    offset: f32, // what the integers are stored above
    invalid: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<TScale>;
@group(0) @binding(3) var<storage, read> zeros: array<TScale>;
@group(0) @binding(4) var<storage, read> index: array<i32>;

const PER_BYTE: u32 = 8 / BITS; // integers

fn each(i: u32) {
    let pick = index[i / params.width];
    if (pick < 0 || pick >= params.size) {
        out[i] = T(params.invalid);
        return;
    }
    let row = u32(pick);
    let place = i % params.width;
    let byte = row * params.row_bytes + place / PER_BYTE;
    let part = select(place % PER_BYTE, PER_BYTE - 1u - place % PER_BYTE, HIGH_FIRST);
    // Bytes with a sign are turned to bytes above 128, so that all integers are stored above an offset.
    let word = table[byte / 4u] ^ select(0u, 0x80808080u, BITS == 8u && params.offset > 0.0);
    var value = f32((word >> (byte % 4u * 8u + part * BITS)) & ((1u << BITS) - 1u)) - params.offset;
    let group = row * params.row_scales + place / params.group;
    if (ZEROS) {
        value -= f32(zeros[group]);
    }
    value *= f32(scales[group]);
    if (MINIMA) {
        value += f32(zeros[group]);
    }
    out[i] = T(value);
}

#include common/each_in_runs
