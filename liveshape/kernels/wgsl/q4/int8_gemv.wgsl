// 4-bit GEMV of one quantized row: a unit is four columns, UNIT_THREADS threads split its depth. The sums are those of
// q4/quantizing_gemv.wgsl to the last bit. The RMSNorm scale may be applied in the epilogue.
// unchecked: columns and groups are held below the sizes that planning checked.
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 256;
override SUBGROUP: u32 = 0;

const PLACES: u32 = GROUP_UNITS;

#include reduction/across_threads
#include q4/int8_operands
#include q4/int8_columns

#if TOTAL == sums_and_squares
// The row is quantized before its RMSNorm: partial sums of four columns, and of the squares of the row, which the
// producer wrote beside it and which give the RMSNorm scale.
override EPS: f32 = 0.0;

struct Total {
    sums: vec4<f32>,
    squares: f32,
}

fn combine(a: Total, b: Total) -> Total {
    return Total(a.sums + b.sums, a.squares + b.squares);
}

fn plus_group(total: Total, four: Four, row: Places, of_row: vec4<f32>) -> Total {
    return Total(plus_bytes(total.sums, four, row, of_row), total.squares + of_row.w);
}

fn sums_of(total: Total) -> vec4<f32> {
    return total.sums * inverseSqrt(total.squares / f32(params.depth) + EPS);
}
#else
// Partial sums of four columns.
alias Total = vec4<f32>;

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

fn plus_group(total: Total, four: Four, row: Places, of_row: vec4<f32>) -> Total {
    return plus_bytes(total, four, row, of_row);
}

fn sums_of(total: Total) -> vec4<f32> {
    return total;
}
#endif

#include q4/epilogue
#include q4/epilogue_unit

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = unit_of(group_index(group, grid), thread);
    let column = min(unit * 4u, params.columns - 1u);
    let member = member_of(thread);
    if (member == 0u) {
        prefetch_residual(0u, column);
    }
    var mine = Total();
    for (var i = member; i < groups(); i += COOPERATING) {
        let row = in_weight_order(x[i * 3u], x[i * 3u + 1u]);
        mine = plus_group(mine, fetch(column, i), row, bitcast<vec4<f32>>(x[i * 3u + 2u]));
    }
    let total = reduce_unit(thread, mine);
    store_unit(thread, unit, unit_of(0u, thread), member == 0u, sums_of(total));
}
