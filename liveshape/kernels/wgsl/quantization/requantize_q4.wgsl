// Quantizes weights [N, K] to nibbles with an offset of 8, two neighbours to a byte and the first of them low, by
// scales [K / group, N] that stay as they are; a thread makes the four bytes of a word. A group with scale zero is all
// zeros.
// T: f32, f16
// TScale: f32, f16
override WG: u32 = 64;

struct Params {
    count: u32, // of words
    bytes: u32, // of all rows
    row_bytes: u32,
    width: u32, // K
    group: u32,
    scale_stride: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> latent: array<T>;
@group(0) @binding(2) var<storage, read> scales: array<TScale>;

fn code(row: u32, k: u32) -> u32 {
    if (k >= params.width) {
        return 0u;
    }
    let scale = f32(scales[k / params.group * params.scale_stride + row]);
    if (scale == 0.0) {
        return 8u;
    }
    return u32(i32(clamp(round(f32(latent[row * params.width + k]) / scale), -8.0, 7.0)) + 8);
}

fn each(i: u32) {
    var word = 0u;
    for (var j = 0u; j < 4u; j++) {
        let byte = 4u * i + j;
        if (byte < params.bytes) {
            let row = byte / params.row_bytes;
            let k = byte % params.row_bytes * 2u;
            word |= (code(row, k) | (code(row, k + 1u) << 4u)) << (j * 8u);
        }
    }
    out[i] = word;
}

#include common/each
