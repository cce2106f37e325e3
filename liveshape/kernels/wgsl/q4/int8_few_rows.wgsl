// 4-bit linear layer of a few quantized rows, bound by reading the weight once: a unit is four columns of up to ROWS
// rows, and UNIT_THREADS threads split its depth.
// unchecked: rows, columns and groups are held below the sizes that planning checked.
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override ROWS: u32 = 1; // that a thread takes: 1, 2, 4 or 8

override UNIT_THREADS: u32 = 1;

#include q4/int8_operands
#include q4/int8_columns
#include q4/epilogue
#include q4/row_sums

fn plus_row(sums: vec4<f32>, four: Four, row: u32, group: u32) -> vec4<f32> {
    let place = (min(row, params.rows - 1u) * groups() + group) * 3u;
    let places = in_weight_order(x[place], x[place + 1u]);
    return plus_bytes(sums, four, places, bitcast<vec4<f32>>(x[place + 2u]));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let per_row = (params.columns + 3u) / 4u;
    let first_unit = group_index(group, grid) * GROUP_UNITS;
    let unit = first_unit + thread / COOPERATING;
    let row = unit / per_row * ROWS;
    let column = unit % per_row * 4u;
    let member = thread % COOPERATING;
    // The sums of eight rows are two matrices: an array that is indexed in a loop may be spilled to memory.
    var upper = mat4x4<f32>();
    var lower = mat4x4<f32>();
    for (var i = member; i < groups(); i += COOPERATING) {
        let four = fetch(column, i);
        upper[0] = plus_row(upper[0], four, row, i);
        if (ROWS > 1u) {
            upper[1] = plus_row(upper[1], four, row + 1u, i);
        }
        if (ROWS > 2u) {
            upper[2] = plus_row(upper[2], four, row + 2u, i);
            upper[3] = plus_row(upper[3], four, row + 3u, i);
        }
        if (ROWS > 4u) {
            lower[0] = plus_row(lower[0], four, row + 4u, i);
            lower[1] = plus_row(lower[1], four, row + 5u, i);
            lower[2] = plus_row(lower[2], four, row + 6u, i);
            lower[3] = plus_row(lower[3], four, row + 7u, i);
        }
    }
    store_sums(thread, first_unit, per_row, upper, lower);
}
