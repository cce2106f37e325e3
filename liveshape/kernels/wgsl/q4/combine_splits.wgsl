// Split-K of a 4-bit linear layer: a thread sums the partial sums of four columns of a row, for the epilogue.
override WG: u32 = 64;

const PLACES: u32 = WG;

@group(0) @binding(0) var<storage, read> partial_sums: array<vec4<f32>>;
#include q4/layer
#include q4/epilogue
#include q4/epilogue_unit

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, grid) * WG + thread;
    let fours = (params.columns + 3u) / 4u;
    let row = i / fours;
    let column = i % fours * 4u;
    var total = vec4<f32>();
    if (row < params.rows) {
        prefetch_residual(row, column);
        for (var split_index = 0u; split_index < params.splits; split_index++) {
            total += partial_sums[split_index * params.rows * fours + i];
        }
    }
    store_unit(thread, row, column, thread, true, total);
}
