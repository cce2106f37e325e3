// 4-bit linear layer of a few rows, of floats or quantized, bound by reading the weight once: a unit is four columns of
// up to ROWS rows, UNIT_THREADS threads split its depth, and each weight is dequantized once for these rows.
#choice OPERANDS: floats, int8
// T: f32, f16
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override ROWS: u32 = 2; // that a thread takes: 1, 2, 4 or 8
override UNIT_THREADS: u32 = 1;

#if OPERANDS == floats
#include common/multiply_add
#include q4/float_operands
#include q4/row
#include q4/float_columns

fn plus_loaded(sums: vec4<f32>, numbers: Numbers, row: u32, word: u32) -> vec4<f32> {
    return plus_row(sums, numbers, row);
}
#else
// unchecked: rows, columns and groups are held below the sizes that planning checked.
#include q4/int8_operands
#include q4/int8_columns

fn plus_loaded(sums: vec4<f32>, four: Four, row: u32, group: u32) -> vec4<f32> {
    let place = (min(row, params.rows - 1u) * groups() + group) * 3u;
    let places = in_weight_order(x[place], x[place + 1u]);
    return plus_bytes(sums, four, places, bitcast<vec4<f32>>(x[place + 2u]));
}
#endif
#include q4/epilogue
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
    let row = unit / per_row * ROWS;
    let column = unit % per_row * 4u;
    let member = thread % COOPERATING;
    // The sums of eight rows are two matrices: an array that is indexed in a loop may be spilled to memory.
    var upper = mat4x4<f32>();
    var lower = mat4x4<f32>();
#if OPERANDS == floats
    // The next words are prefetched to registers.
    let last = params.columns - 1u;
    let columns = vec4<u32>(column, min(column + 1u, last), min(column + 2u, last), min(column + 3u, last));
    let words = (params.depth + 7u) / 8u;
    var next = fetch(columns, min(member, words - 1u));
    for (var i = member; i < words; i += COOPERATING) {
        let loaded = numbers_of(next, column);
        next = fetch(columns, min(i + COOPERATING, words - 1u));
#else
    for (var i = member; i < groups(); i += COOPERATING) {
        let loaded = fetch(column, i);
#endif
        upper[0] = plus_loaded(upper[0], loaded, row, i);
        if (ROWS > 1u) {
            upper[1] = plus_loaded(upper[1], loaded, row + 1u, i);
        }
        if (ROWS > 2u) {
            upper[2] = plus_loaded(upper[2], loaded, row + 2u, i);
            upper[3] = plus_loaded(upper[3], loaded, row + 3u, i);
        }
        if (ROWS > 4u) {
            lower[0] = plus_loaded(lower[0], loaded, row + 4u, i);
            lower[1] = plus_loaded(lower[1], loaded, row + 5u, i);
            lower[2] = plus_loaded(lower[2], loaded, row + 6u, i);
            lower[3] = plus_loaded(lower[3], loaded, row + 7u, i);
        }
    }
    store_sums(thread, first_unit, per_row, upper, lower);
}
