// Where element i of planes of these sizes lies: its depth, row and column, and its plane.
struct Place {
    at: vec3<i32>,
    plane: u32,
}

fn place_of(i: u32, sizes: vec3<i32>) -> Place {
    let spans = vec3<u32>(sizes);
    let row = i / spans.z;
    let layer = row / spans.y;
    var plane = layer;
    // A division is worth more than a branch that all take.
    if (spans.x > 1u) {
        plane = layer / spans.x;
    }
    return Place(vec3<i32>(vec3<u32>(layer - plane * spans.x, row - layer * spans.y, i - row * spans.z)), plane);
}
