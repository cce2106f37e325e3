// A strided copy where x is contiguous across and out is contiguous along: square tiles are transposed in workgroup memory, so that
// both sides move whole rows. One workgroup per tile; `sizes` are the other dimensions.
// composable: each element is stored once.
override WG: u32 = 256;

const TILE: u32 = 32u;
const PITCH: u32 = TILE + 1u; // rows one word apart, so that a column spreads over the banks

struct Params {
    tiles: u32,
    rank: u32,
    across: u32,
    along: u32,
    across_stride: i32, // of out
    along_stride: i32, // of x
    source_start: i32,
    target_start: i32,
    sizes: array<vec4<u32>, 2>,
    source_strides: array<vec4<i32>, 2>,
    target_strides: array<vec4<i32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;

#include movement/walk_both

var<workgroup> tile: array<T, TILE * PITCH>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    var rest = group_index(group, grid);
    if (rest >= params.tiles) {
        return;
    }
    let tiles_across = (params.across + TILE - 1u) / TILE;
    let tiles_along = (params.along + TILE - 1u) / TILE;
    let first_across = (rest % tiles_across) * TILE;
    rest = rest / tiles_across;
    let first_along = (rest % tiles_along) * TILE;
    let offsets = walk_both(rest / tiles_along);
    for (var i = thread; i < TILE * TILE; i += WG) {
        let across = first_across + i % TILE;
        let along = first_along + i / TILE;
        if (across < params.across && along < params.along) {
            tile[(i / TILE) * PITCH + i % TILE] = x[u32(offsets.x + i32(along) * params.along_stride + i32(across))];
        }
    }
    workgroupBarrier();
    for (var i = thread; i < TILE * TILE; i += WG) {
        let across = first_across + i / TILE;
        let along = first_along + i % TILE;
        if (across < params.across && along < params.along) {
            out[u32(offsets.y + i32(across) * params.across_stride + i32(along))] =
                tile[(i % TILE) * PITCH + i / TILE];
        }
    }
}
