// The epilogue of a block of four rows by four columns.
#if EPILOGUE == gated_quantized
// A tile has THREADS_Y by THREADS_X threads, a multiple of 16: of 16 neighbours the first four take a row each, and
// quantize 32 neighbours of it.
var<workgroup> pairs: array<vec2<f32>, WG * 4>;

fn pair_at(place: u32) -> vec2<f32> {
    return pairs[place];
}

fn store_block(row: u32, column: u32, block: mat4x4<f32>) {
    let place = row / 4u % THREADS_Y * THREADS_X + column / 4u % THREADS_X;
    let r = place % 16u;
    let inside = column < params.columns;
    // The block before may still be read.
    workgroupBarrier();
    if (inside) {
        pairs[place] = gated_of(column, block[0]);
        pairs[WG + place] = gated_of(column, block[1]);
        pairs[WG * 2u + place] = gated_of(column, block[2]);
        pairs[WG * 3u + place] = gated_of(column, block[3]);
    }
    workgroupBarrier();
    if (r < 4u && inside && row + r < params.rows) {
        store_quantized((row + r) * (params.columns / 64u) + column / 64u, group_at(WG * r + place - r));
    }
}
#else
fn store_block(row: u32, column: u32, block: mat4x4<f32>) {
    store_four(row, column, block[0]);
    store_four(row + 1u, column, block[1]);
    store_four(row + 2u, column, block[2]);
    store_four(row + 3u, column, block[3]);
}
#endif
