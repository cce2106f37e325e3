// Attention of many rows by the matrix units of a device: a workgroup takes TILE_ROWS of them through a split of the
// context, KEYS at a time, each of its subgroups ROW_BLOCKS matrices of them. Queries, keys, values and weights are halves:
// keys and values those of the tensors themselves (eight to a load), of tiles that attention/half_cache.wgsl wrote, or of
// pages as they are staged; what is made is divided by powers of two that keep the largest number in range, as queries are.
// Scores, softmax and sums are floats.
//
// The subgroups of a workgroup share keys and values, and nothing else: two barriers of a step are for these, whose next
// ones are on their way meanwhile. Scores become weights in a scratch of each subgroup, a matrix at a time, since threads
// see no element of one. All that runs on an SM shares 48 KB there (H200), so memory decides how many workgroups do.
//
// A thread sees no row of the sums, which lie in matrices: what they are relative to is raised only when a score exceeds
// it by more than SLACK, so that they are seldom rescaled.
// composable: an element of the result is stored once.
// unchecked: places in the workgroup's memory follow from constants, rows and keys are held below the live ones.
// T: f32, f16
// TRow: f32, f16
// TOut: f32, f16
// TMask: f32, f16, u32
// TBias: f32, f16
// TSink: f32, f16
#choice HALVES: made, given
override WG: u32 = 128;
override LANES: u32 = 32; // of a subgroup
override ROW_BLOCKS: u32 = 1; // matrices of a subgroup's rows
override KEYS: u32 = 32;
override KEY_BLOCKS: u32 = 2; // matrices
override HEAD_BLOCKS: u32 = 4;
override LOADS: u32 = 2; // eights of keys that a thread stages, and as many of values

@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read_write> split_results: array<f32>; // see attention/store_split.wgsl
#if HALVES == given
// words queries, keys, values
@group(0) @binding(2) var<storage, read> queries: array<vec4<u32>>;
#else
@group(0) @binding(2) var<storage, read> queries: array<vec4<TRow>>;
#endif
#if CACHE == paged
@group(0) @binding(3) var<storage, read> keys: array<V>;
@group(0) @binding(4) var<storage, read> values: array<V>;
@group(0) @binding(5) var<storage, read> lines: array<vec4<i32>>;
@group(0) @binding(6) var<storage, read> block_table: array<i32>;
#if SOFTMAX == with_sinks
@group(0) @binding(7) var<storage, read> sinks: array<TSink>;
#endif
#else
#if HALVES == given
@group(0) @binding(3) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> values: array<vec4<u32>>;
#else
// scratch halves, factors
@group(0) @binding(3) var<storage, read> halves: array<vec4<u32>>; // see attention/half_cache.wgsl
@group(0) @binding(4) var<storage, read> factors: array<vec2<f32>>;
#endif
@group(0) @binding(5) var<storage, read> mask: array<TMask>;
#if BIAS == added
@group(0) @binding(6) var<storage, read> bias: array<TBias>;
#endif
#endif

#include attention/params
#include attention/operands
#if HALVES == given
#include attention/store_fours
#else
#include attention/row_fours
#endif
#include attention/head_width
#if CACHE == paged
#include attention/keys_and_values
#endif
#include attention/store_split
#include attention/matrix_operands
#include attention/matrix_scores

const SUBGROUPS: u32 = WG / LANES;
const TILE_ROWS: u32 = SUBGROUPS * ROW_BLOCKS * MATRIX;
const SLACK: f32 = 5.0; // weights stay below exp(5) and halves
const LOG2_E: f32 = 1.4426950408889634;

alias Left = subgroup_matrix_left<f16, MATRIX, MATRIX>;
alias Right = subgroup_matrix_right<f16, MATRIX, MATRIX>;
alias Sum = subgroup_matrix_result<f32, MATRIX, MATRIX>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = group_index(group, grid);
    if (index >= params.units * params.splits) {
        return;
    }
    // Under a causal mask the last rows see most keys: they begin first.
    let work = params.units * params.splits - 1u - index;
    let unit = unit_at(work / params.splits);
    let first_row = unit.block * TILE_ROWS;
#if CACHE == paged
    if (first_row >= unit.rows) {
        return;
    }
    let of_first_row = visible_to(unit, first_row);
    let of_last_row = visible_to(unit, first_row + TILE_ROWS - 1u);
    let begin = of_first_row.first + work % params.splits * params.split_keys;
    let last_key = min(begin + params.split_keys, of_last_row.last + 1u);
    let seen_by_all = min(last_key, of_first_row.last + 1u);
    let rows = unit.rows;
#else
    let begin = work % params.splits * params.split_keys;
    var last_key = min(begin + params.split_keys, params.context);
    var seen_by_all = last_key;
    if (params.causal != 0u) {
        let last_row = min(first_row + TILE_ROWS, params.rows) - 1u;
        last_key = min(last_key, params.position + last_row / params.group + 1u);
        seen_by_all = min(last_key, params.position + first_row / params.group + 1u);
    }
    let rows = params.rows;
#endif
    let lane = thread % LANES;
    let place = subgroupBroadcastFirst(thread / LANES);
    // Two threads have a row of each matrix: each takes every other four of its keys.
    let half = lane % 2u;
    let own_row = first_row + place * ROW_BLOCKS * MATRIX;
    let is_active = own_row < rows; // the others only stage keys and values
    let scratch = place * SCRATCH;
    let own_scores = scratch + lane / 2u * SCORE_PITCH + half;
    let own_weights = scratch + lane / 2u * WEIGHT_PITCH + half;
    // The first keys and values are on their way while queries become halves.
#unroll i < LOADS
    var key_$i: Eight;
    var value_$i: Eight;
#endunroll
#if CACHE == contiguous
    var fetched_factors = vec2<f32>(1.0);
#endif
    if (begin < last_key) {
#if CACHE == contiguous
        fetched_factors = factors_of(unit, begin, last_key);
#endif
#unroll i < LOADS
        key_$i = key_eight(unit, begin, last_key, load_of(thread + $iu * WG));
        value_$i = value_eight(unit, begin, last_key, load_of(thread + $iu * WG));
#endunroll
    }
#unroll r < ROW_BLOCKS
    let row_$r = min(own_row + $ru * MATRIX + lane / 2u, rows - 1u);
    let visible_$r = visible_to(unit, row_$r);
    let query_at_$r = query_place(unit, row_$r);
    var relative_to_$r = LOWEST; // what the sums of this row are divided by, as a logarithm
    var exp_sum_$r = 0.0; // of this thread's keys
#if SOFTMAX == with_sinks
    if (work % params.splits == 0u) {
        relative_to_$r = sink_of(unit, row_$r);
        exp_sum_$r = select(0.0, 1.0, half == 0u); // once, as both threads add theirs up
    }
#endif
#unroll k < HEAD_BLOCKS
    let given_$r_$k = query_eight(query_at_$r, half + $ku * 2u);
#endunroll
#endunroll
#unroll r < ROW_BLOCKS
#if HALVES == given
    let query_scale_$r = params.scale; // queries are as they are
#else
    var most_$r = 0.0;
#unroll k < HEAD_BLOCKS
    most_$r = max(most_$r, largest(given_$r_$k));
#endunroll
    let scale_$r = half_scale(max(most_$r, subgroupShuffleXor(most_$r, 1u)));
    let query_scale_$r = scale_$r.factor;
#endif
#unroll k < HEAD_BLOCKS
#if HALVES == given
    scores[scratch + lane / 2u * QUERY_PITCH + half] = given_$r_$k;
#else
    scores[scratch + lane / 2u * QUERY_PITCH + half] = halved(given_$r_$k, scale_$r.inverse);
#endif
    in_order();
    let query_$r_$k = subgroupMatrixLoad<Left, row_major>(&scores, scratch, QUERY_PITCH);
    in_order();
    var sum_$r_$k = Sum();
#endunroll
#endunroll
    for (var first_key = begin; first_key < last_key; first_key += KEYS) {
#if CACHE == paged
        var both = vec2<f32>();
#unroll i < LOADS
        both = max(both, vec2<f32>(largest(key_$i), largest(value_$i)));
#endunroll
        both = subgroupMax(both);
        if (lane == 0u) {
            largest_of[place] = vec4<f32>(both, both);
        }
#endif
        workgroupBarrier(); // those of the step before were read
#if CACHE == paged
        var most = largest_of[0].xy;
        for (var i = 1u; i < SUBGROUPS; i++) {
            most = max(most, largest_of[i].xy);
        }
        let key_scale = half_scale(most.x);
        let value_scale = half_scale(most.y);
        let key_factor = key_scale.factor;
        let value_factor = value_scale.factor;
#unroll i < LOADS
        tile[staged(load_of(thread + $iu * WG))] = halved(key_$i, key_scale.inverse);
        tile[staged_value(load_of(thread + $iu * WG))] = halved(value_$i, value_scale.inverse);
#endunroll
#else
        let key_factor = fetched_factors.x;
        let value_factor = fetched_factors.y;
#unroll i < LOADS
        tile[staged(load_of(thread + $iu * WG))] = key_$i;
        tile[staged_value(load_of(thread + $iu * WG))] = value_$i;
#endunroll
#endif
        workgroupBarrier();
        // Under a condition, as compilers would move loads to where they are read, past all that is to hide them.
        if (first_key + KEYS < last_key) {
#if CACHE == contiguous
            fetched_factors = factors_of(unit, first_key + KEYS, last_key);
#endif
#unroll i < LOADS
            key_$i = key_eight(unit, first_key + KEYS, last_key, load_of(thread + $iu * WG));
            value_$i = value_eight(unit, first_key + KEYS, last_key, load_of(thread + $iu * WG));
#endunroll
        }
        if (is_active) {
#unroll j < KEY_BLOCKS
#unroll k < HEAD_BLOCKS
            let right_$j_$k = subgroupMatrixLoad<Right, col_major>(&tile, $ju * MATRIX * PITCH + $ku * 2u, PITCH);
#endunroll
#unroll r < ROW_BLOCKS
            var score_$r_$j = Sum();
#unroll k < HEAD_BLOCKS
            score_$r_$j = subgroupMatrixMultiplyAccumulate(query_$r_$k, right_$j_$k, score_$r_$j);
#endunroll
#endunroll
#endunroll
#unroll r < ROW_BLOCKS
#unroll j < KEY_BLOCKS
            subgroupMatrixStore<row_major>(&scores, scratch, score_$r_$j, SCORE_PITCH);
            in_order();
            var low_$r_$j = stored_four(own_scores);
            var high_$r_$j = stored_four(own_scores + 2u);
            in_order();
#endunroll
#endunroll
            // What values were divided by is taken on by their weights, as logarithms.
            let shift = log(value_factor);
            // Where every row sees every key there is nothing to hide.
#if CACHE == paged
            let hides = SOFTCAP || first_key < of_last_row.first || first_key + KEYS > seen_by_all;
#else
            let hides = CHANGES_SCORES || first_key + KEYS > seen_by_all;
#endif
            var grown = false;
#unroll r < ROW_BLOCKS
            var correction_$r = 1.0;
            {
                let factor = query_scale_$r * key_factor;
                if (hides) {
                    let key = first_key + half * 4u;
#unroll j < KEY_BLOCKS
                    low_$r_$j = masked_four(visible_$r, key + $ju * MATRIX, last_key, low_$r_$j * factor);
                    high_$r_$j = masked_four(visible_$r, key + $ju * MATRIX + 8u, last_key, high_$r_$j * factor);
#endunroll
                }
                var tops = low_$r_0;
#unroll j < KEY_BLOCKS
                tops = max(tops, max(low_$r_$j, high_$r_$j));
#endunroll
                var top = max(max(tops.x, tops.y), max(tops.z, tops.w));
                top = max(max(top, subgroupShuffleXor(top, 1u)) * select(factor, 1.0, hides), LOWEST);
                let raised = top + shift > relative_to_$r + SLACK;
                if (raised) {
                    correction_$r = exp(relative_to_$r - (top + shift));
                    relative_to_$r = top + shift;
                }
                if (hides) {
                    // A mask of the least float32 makes every score of a row LOWEST: such keys count alike, and the shift
                    // must not vanish beside it.
#unroll j < KEY_BLOCKS
                    low_$r_$j = weights_of(low_$r_$j, relative_to_$r, shift);
                    high_$r_$j = weights_of(high_$r_$j, relative_to_$r, shift);
#endunroll
                } else {
                    let less = vec4<f32>((shift - relative_to_$r) * LOG2_E);
#unroll j < KEY_BLOCKS
                    low_$r_$j = exp2(fma(low_$r_$j, vec4<f32>(factor * LOG2_E), less));
                    high_$r_$j = exp2(fma(high_$r_$j, vec4<f32>(factor * LOG2_E), less));
#endunroll
                }
                var mine = vec4<f32>();
#unroll j < KEY_BLOCKS
                mine += low_$r_$j + high_$r_$j;
                scores[own_weights + $ju * 2u] = eight_halves(low_$r_$j, high_$r_$j);
#endunroll
                grown = grown || (raised && exp_sum_$r > 0.0);
                exp_sum_$r = exp_sum_$r * correction_$r + (mine.x + mine.y + mine.z + mine.w) / value_factor;
            }
            in_order();
#unroll j < KEY_BLOCKS
            let weight_$r_$j = subgroupMatrixLoad<Left, row_major>(&scores, scratch + $ju * 2u, WEIGHT_PITCH);
#endunroll
            in_order();
#endunroll
            if (subgroupAny(grown)) {
#unroll r < ROW_BLOCKS
#unroll k < HEAD_BLOCKS
                subgroupMatrixStore<row_major>(&scores, scratch, sum_$r_$k, SCORE_PITCH);
                in_order();
                rescale(own_scores, correction_$r);
                rescale(own_scores + 2u, correction_$r);
                in_order();
                sum_$r_$k = subgroupMatrixLoad<Sum, row_major>(&scores, scratch, SCORE_PITCH);
                in_order();
#endunroll
#endunroll
            }
#unroll j < KEY_BLOCKS
#unroll k < HEAD_BLOCKS
            let value_matrix_$j_$k = subgroupMatrixLoad<Right, row_major>(
                &tile, VALUES_AT + $ju * MATRIX * PITCH + $ku * 2u, PITCH,
            );
#unroll r < ROW_BLOCKS
            sum_$r_$k = subgroupMatrixMultiplyAccumulate(weight_$r_$j, value_matrix_$j_$k, sum_$r_$k);
#endunroll
#endunroll
#endunroll
        }
    }
    if (!is_active) {
        return;
    }
#unroll r < ROW_BLOCKS
    {
        let whole = exp_sum_$r + subgroupShuffleXor(exp_sum_$r, 1u);
        // Beside the scores of a row: its sum of exponentials, what its sums are relative to, and where it goes.
        let end = vec4<u32>(bitcast<u32>(whole), bitcast<u32>(relative_to_$r), out_place(unit, row_$r), 0u);
        scores[scratch + lane / 2u * SCORE_PITCH + MATRIX / 4u] = end;
    }
#unroll k < HEAD_BLOCKS
    subgroupMatrixStore<row_major>(&scores, scratch, sum_$r_$k, SCORE_PITCH);
    in_order();
    // Neighbours store neighbours of a row.
    for (var i = lane; i < MATRIX * MATRIX / 4u; i += LANES) {
        let row = own_row + $ru * MATRIX + i / 4u;
        let four = $ku * MATRIX / 4u + i % 4u;
        if (row < rows && (WHOLE_MATRICES || four < VEC4S)) {
            let sum = stored_four(scratch + i / 4u * SCORE_PITCH + i % 4u);
            let end = scores[scratch + i / 4u * SCORE_PITCH + MATRIX / 4u];
            let whole = bitcast<f32>(end.x);
            if (params.splits > 1u) {
                store_split(work * TILE_ROWS + row - first_row, four, sum, bitcast<f32>(end.y), whole);
            } else {
                store(end.z, four, averaged(sum, whole));
            }
        }
    }
    in_order();
#endunroll
#endunroll
}
