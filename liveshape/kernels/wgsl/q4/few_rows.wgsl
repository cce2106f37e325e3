// 4-bit linear layer of a few rows of floats, bound by reading the weight once: a unit is four columns of up to ROWS
// rows, UNIT_THREADS threads split its depth, and each weight is dequantized once for these rows. The next words are
// prefetched to registers.
// T: f32, f16
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override ROWS: u32 = 2; // that a thread takes: 2, 4 or 8
override UNIT_THREADS: u32 = 1;

#include common/multiply_add
#include q4/float_operands
#include q4/row
#include q4/epilogue
#include q4/float_columns
#include q4/row_sums

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let per_row = (params.columns + 3u) / 4u;
    let first_unit = group_index(group, grid) * GROUP_UNITS;
    let unit = first_unit + thread / COOPERATING;
    let last = params.columns - 1u;
    let row = unit / per_row * ROWS;
    let column = unit % per_row * 4u;
    let columns = vec4<u32>(column, min(column + 1u, last), min(column + 2u, last), min(column + 3u, last));
    let words = (params.depth + 7u) / 8u;
    // The sums of eight rows are two matrices: an array that is indexed in a loop may be spilled to memory.
    var upper = mat4x4<f32>();
    var lower = mat4x4<f32>();
    var next = fetch(columns, min(thread % COOPERATING, words - 1u));
    for (var i = thread % COOPERATING; i < words; i += COOPERATING) {
        let numbers = numbers_of(next, column);
        next = fetch(columns, min(i + COOPERATING, words - 1u));
        upper[0] = plus_row(upper[0], numbers, row);
        upper[1] = plus_row(upper[1], numbers, row + 1u);
        if (ROWS > 2u) {
            upper[2] = plus_row(upper[2], numbers, row + 2u);
            upper[3] = plus_row(upper[3], numbers, row + 3u);
        }
        if (ROWS > 4u) {
            lower[0] = plus_row(lower[0], numbers, row + 4u);
            lower[1] = plus_row(lower[1], numbers, row + 5u);
            lower[2] = plus_row(lower[2], numbers, row + 6u);
            lower[3] = plus_row(lower[3], numbers, row + 7u);
        }
    }
    store_sums(thread, first_unit, per_row, upper, lower);
}
