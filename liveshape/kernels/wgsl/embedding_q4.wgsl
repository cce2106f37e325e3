// out[pick, :] = the row index[pick] of a table of nibbles, two to a byte and offset by 8, times the scales of its
// groups; an index outside of the table gives `invalid` and reads nothing.
// T: f32, f16
// TScale: f32, f16
override WG: u32 = 64;
override HIGH_FIRST: bool = false; // whether even places of a row lie in the high nibbles

struct Params {
    count: u32,
    width: u32,
    size: i32, // rows of the table
    row_bytes: u32,
    group: u32,
    row_scales: u32,
    invalid: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<TScale>;
@group(0) @binding(3) var<storage, read> index: array<i32>;
@group(0) @binding(4) var<uniform> params: Params;

fn each(i: u32) {
    let pick = index[i / params.width];
    if (pick < 0 || pick >= params.size) {
        out[i] = T(params.invalid);
        return;
    }
    let row = u32(pick);
    let place = i % params.width;
    let byte = row * params.row_bytes + place / 2u;
    let nibble = byte % 4u * 2u + select(place % 2u, 1u - place % 2u, HIGH_FIRST);
    let value = f32((table[byte / 4u] >> (nibble * 4u)) & 15u) - 8.0;
    out[i] = T(value * f32(scales[row * params.row_scales + place / params.group]));
}

// include each
