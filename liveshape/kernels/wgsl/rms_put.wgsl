@group(0) @binding(0) var<storage, read_write> out: array<V>;

fn put_row(lane: u32, start: u32, scale: f32) {
    for (var i = lane; i < params.width; i += WG) {
        out[start + i] = V(second_look(start + i) * scale * V_math(weight[i]));
    }
}
