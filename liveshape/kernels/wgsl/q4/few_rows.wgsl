// 4-bit linear layer of a few rows, of floats or quantized, bound by reading the weight once: a unit is four columns of
// up to ROWS rows, UNIT_THREADS threads split its depth, and each weight is dequantized once for these rows.
#choice OPERANDS: floats, int8
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
    let place = place_of_row(row, group);
    return plus_bytes(sums, four, in_weight_order(x[place], x[place + 1u]), bitcast<vec4<f32>>(x[place + 2u]));
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
    // Sums have names: an array that is indexed in a loop may be spilled to memory.
#unroll r < ROWS
    var sums_$r = vec4<f32>();
#endunroll
#if OPERANDS == floats
    // The next words are prefetched to registers.
    let columns = columns_from(column);
    let words = (params.depth + 7u) / 8u;
    var next = fetch(columns, min(member, words - 1u));
    for (var i = member; i < words; i += COOPERATING) {
        let loaded = numbers_of(next, column);
        next = fetch(columns, min(i + COOPERATING, words - 1u));
#else
    for (var i = member; i < groups(); i += COOPERATING) {
        let loaded = fetch(column, i);
#endif
#unroll r < ROWS
        sums_$r = plus_loaded(sums_$r, loaded, row + $ru, i);
#endunroll
    }
    // Few rows at a time: scratch for the partial sums must fit in workgroup memory.
#unroll r < ROWS
    partial_totals[thread * TOGETHER + $ru % TOGETHER] = sums_$r;
    if ($ru % TOGETHER == TOGETHER - 1u) {
        workgroupBarrier();
        store_rows(thread, first_unit, per_row, $ru + 1u - TOGETHER);
    }
#endunroll
}
