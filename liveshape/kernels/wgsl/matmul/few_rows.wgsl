// GEMM of few rows, bound by reading the right factor once: a unit is four columns, UNIT_THREADS threads split its
// depth.
// composable: a sum is stored once.
// T: f32, f16
override WG: u32 = 128;
override ROWS: u32 = 1; // at least params.rows

alias Total = array<vec4<f32>, ROWS>; // per row, the sums of four columns

fn combine(a: Total, b: Total) -> Total {
    var left = a;
    var right = b;
    for (var r = 0u; r < ROWS; r++) {
        left[r] += right[r];
    }
    return left;
}

#include common/multiply_add
#include reduction/across_threads
#include matmul/operands

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let per_batch = (params.columns + 3u) / 4u;
    let unit = unit_of(group_index(group, grid), thread);
    let share = share_of(min(unit / per_batch, shares() - 1u));
    let column = (unit % per_batch) * 4u;
    let member = member_of(thread);
    let x_start = share.batch * params.x_stride;
    let weight_start = share.batch * params.weight_stride;
    var mine: Total;
    if (TRANSPOSED) {
        let last = params.columns - 1u;
        let row_0 = weight_start + column * line_step();
        let row_1 = weight_start + min(column + 1u, last) * line_step();
        let row_2 = weight_start + min(column + 2u, last) * line_step();
        let row_3 = weight_start + min(column + 3u, last) * line_step();
        for (var k = share.first_k + member * 4u; k < share.last_k; k += COOPERATING * 4u) {
            let left = params.depth - k;
            let place = along_line(k);
            let block = mat4x4<f32>(
                weight_within(row_0 + place, left),
                weight_within(row_1 + place, left),
                weight_within(row_2 + place, left),
                weight_within(row_3 + place, left),
            );
            for (var r = 0u; r < ROWS; r++) {
                let row = min(r, params.rows - 1u);
                mine[r] = plus_product(mine[r], x_within(x_start + row * params.depth + k, left), block);
            }
        }
    } else {
        for (var k = share.first_k + member; k < share.last_k; k += COOPERATING) {
            let four = weight_four(weight_start + k * params.columns + column);
            for (var r = 0u; r < ROWS; r++) {
                let row = min(r, params.rows - 1u);
                mine[r] = fma(vec4<f32>(x_one(x_start + row * params.depth + k)), four, mine[r]);
            }
        }
    }
    var total = reduce_unit(thread, mine);
    if (unit >= shares() * per_batch) {
        return;
    }
    for (var i = member; i < ROWS * 4u; i += COOPERATING) {
        store_product(share.result, i / 4u, column + i % 4u, total[i / 4u][i % 4u]);
    }
}
