// A tile of ROWS by COLUMNS, both in vec4s, for every workgroup: `compute` takes its split of the depth (split-K).
@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row_tiles = (params.rows + ROWS * 4u - 1u) / (ROWS * 4u);
    let column_tiles = (params.columns + COLUMNS * 4u - 1u) / (COLUMNS * 4u);
    let steps = (params.depth + STEP - 1u) / STEP;
    let share = (steps + params.splits - 1u) / params.splits;
    // Tiles of one band of columns are neighbours, so that its part of the weight stays in the cache. There are more
    // tiles than workgroups only where the device clamps the latter.
    for (var i = group_index(group, grid); i < row_tiles * column_tiles * params.splits; i += grid.x * grid.y * grid.z) {
        let tile_split = i / (row_tiles * column_tiles);
        split = tile_split; // not read here: WGSL takes no private variable for uniform, and there are barriers below
        let place = i % (row_tiles * column_tiles);
        let first = min(tile_split * share, steps);
        let last = min(first + share, steps);
        compute(thread, place % row_tiles * ROWS * 4u, place / row_tiles * COLUMNS * 4u, first, last);
    }
}
