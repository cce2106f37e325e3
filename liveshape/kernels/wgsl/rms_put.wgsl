@group(0) @binding(0) var<storage, read_write> out: array<V>;

fn put_row(lane: u32, start: u32, scale: f32) {
    for (var h = 0u; h < HELD; h++) {
        let i = lane + h * WG;
        if (i < params.width) {
            out[start + i] = V(kept[h] * scale * kept_weight[h]);
        }
    }
    for (var i = lane; HELD == 0u && i < params.width; i += WG) {
        out[start + i] = V(second_look(start + i) * scale * V_math(weight[i]));
    }
}
