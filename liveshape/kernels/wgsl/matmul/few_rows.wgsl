// GEMM of few rows, bound by reading the right factor once: a unit is four columns of up to ROWS rows, UNIT_THREADS
// threads split its depth.
// composable: a sum is stored once.
// T: f32, f16
override WG: u32 = 128;
override ROWS: u32 = 1; // a power of two, at least params.rows
override FOURS: u32 = 1; // of the depth, that a thread loads at once: vectors of halves are eights

#include common/multiply_add
#include matmul/few_row_sums
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
    let weight_start = share.batch * params.weight_stride;
    var sums: array<vec4<f32>, ROWS>;
#unroll r < ROWS
    let x_$r = share.batch * params.x_stride + min($ru, params.rows - 1u) * params.depth;
#endunroll
#if TRANSPOSED == true
    let columns = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.columns - 1u));
    let lines = weight_start + columns * line_step();
    for (var k = share.first_k + member * FOURS * 4u; k < share.last_k; k += COOPERATING * FOURS * 4u) {
#unroll f < FOURS
        let k_$f = k + $fu * 4u;
        var block_$f = mat4x4<f32>();
        if (k_$f < share.last_k) {
            let left = params.depth - k_$f;
            let places = lines + along_line(k_$f);
            block_$f = mat4x4<f32>(
                right_vector(places.x, left), right_vector(places.y, left), right_vector(places.z, left),
                right_vector(places.w, left),
            );
        }
#endunroll
#unroll f < FOURS
        if (k_$f < share.last_k) {
#unroll r < ROWS
            sums[$r] = plus_product(sums[$r], left_four(x_$r + k_$f, params.depth - k_$f), block_$f);
#endunroll
        }
#endunroll
    }
#else
    for (var k = share.first_k + member; k < share.last_k; k += COOPERATING) {
        let four = weight_four(weight_start + k * params.columns + column);
#unroll r < ROWS
        sums[$r] = fma(vec4<f32>(x_one(x_$r + k)), four, sums[$r]);
#endunroll
    }
#endif
    sum_rows(thread, sums);
    if (unit >= shares() * per_batch) {
        return;
    }
    for (var i = member; i < ROWS * 4u; i += COOPERATING) {
        store_product(share.result, i / 4u, column + i % 4u, total_of(thread, i / 4u, i % 4u));
    }
}
