// A tile of common/matrix_tiles.wgsl for every workgroup: of one of a batch, and of a split of its depth (split-K).
override BAND: u32 = 8; // rows of tiles whose columns run one after the other, so that both factors stay in the cache

var<private> batch: u32;
var<private> split: u32;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row_tiles = (params.rows + TILE_ROWS - 1u) / TILE_ROWS;
    let column_tiles = (params.columns + TILE_COLUMNS - 1u) / TILE_COLUMNS;
    let tiles = row_tiles * column_tiles;
    let steps = (depth_vectors() + STEP_VECTORS - 1u) / STEP_VECTORS;
    let share = (steps + params.splits - 1u) / params.splits;
    let i = group_index(group, grid);
    let part = i / tiles;
    // Not read here: WGSL takes no private variable for uniform, and there are barriers below.
    batch = part / params.splits;
    split = part % params.splits;
    let first = min(part % params.splits * share, steps);
    let last = min(first + share, steps);
    if (i < tiles * params.splits * params.batch) {
        let before = i % tiles / (BAND * column_tiles) * BAND;
        let height = min(BAND, row_tiles - before);
        let own = i % tiles - before * column_tiles;
        compute(thread, (before + own % height) * TILE_ROWS, own / height * TILE_COLUMNS, first, last);
    }
}
