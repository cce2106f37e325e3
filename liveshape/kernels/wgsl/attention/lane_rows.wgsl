// Attention of many rows for a device with few threads, whose loads and barriers are expensive and whose shuffles are
// not: a workgroup is one subgroup, and a lane has ROWS rows of its own, in registers. Of each key and value a lane
// loads its share, which all lanes get by shuffles. Compilers for CPUs write a branch for each lane and element of a
// load or a store, so there are few in the text: queries and results go through private arrays, one element at a time,
// and each row has its own, since LLVM compares all uses of an array with each other where it makes coroutines.
// composable: an element of the result is stored once.
// unchecked: places follow from constants, rows and keys are held below the live ones.
// T: f32, f16
// TRow: f32, f16
// TOut: f32, f16
// TMask: f32, f16, u32
// TBias: f32, f16
// TSink: f32, f16
override WG: u32 = 8; // the size of a subgroup
override ROWS: u32 = 4;
override SHARES: u32 = 2; // vec4s of a key that a lane loads
override SHARE_LANES: u32 = 8; // lanes that have one

@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> queries: array<TRow>;
@group(0) @binding(2) var<storage, read> keys: array<V>;
@group(0) @binding(3) var<storage, read> values: array<V>;
#if CACHE == paged
@group(0) @binding(4) var<storage, read> lines: array<vec4<i32>>;
@group(0) @binding(5) var<storage, read> block_table: array<i32>;
#if SOFTMAX == with_sinks
@group(0) @binding(6) var<storage, read> sinks: array<TSink>;
#endif
#else
@group(0) @binding(4) var<storage, read> mask: array<TMask>;
#if BIAS == added
@group(0) @binding(5) var<storage, read> bias: array<TBias>;
#endif
#endif

#include attention/params
#include attention/operands
#include attention/row_elements
#include attention/keys_and_values

const BLOCK_ROWS: u32 = ROWS * WG;
const PADDED: u32 = SHARES * SHARE_LANES * 4; // elements of a head

// Beyond the head they are zero, whatever the last ones are.
fn key_share(place: u32, four: u32) -> vec4<f32> {
    return select(vec4<f32>(), key_four(place, min(four, VEC4S - 1u)), four < VEC4S);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_index(group, grid);
    if (index >= params.units) {
        return;
    }
    let unit = unit_at(index);
    let first_row = unit.block * BLOCK_ROWS;
#if CACHE == paged
    if (first_row >= unit.rows) {
        return;
    }
    let last_row = min(first_row + BLOCK_ROWS, unit.rows) - 1u;
    let first_key = visible_to(unit, first_row).first;
    let last_key = visible_to(unit, last_row).last + 1u;
#else
    let last_row = min(first_row + BLOCK_ROWS, params.rows) - 1u;
    let first_key = 0u;
    let seen = min(params.context, params.position + last_row / params.group + 1u);
    let last_key = select(params.context, seen, params.causal != 0u);
#endif
#unroll r < ROWS
    var elements_$r: array<f32, PADDED>; // a query, then a result
    let query_$r = query_place(unit, min(first_row + $ru * WG + lane, last_row));
    for (var e = 0u; e < KEY_SIZE; e++) {
        elements_$r[e] = f32(queries[query_$r + e]) * params.scale;
    }
    let visible_$r = visible_to(unit, first_row + $ru * WG + lane);
#if SOFTMAX == with_sinks
    var maximum_$r = sink_of(unit, first_row + $ru * WG + lane);
    var exp_sum_$r = 1.0;
#else
    var maximum_$r = LOWEST;
    var exp_sum_$r = 0.0;
#endif
#unroll j < SHARES
#unroll l < SHARE_LANES
    let place_$r_$j_$l = ($ju * SHARE_LANES + $lu) * 4u;
    let query_$r_$j_$l = vec4<f32>(
        elements_$r[place_$r_$j_$l], elements_$r[place_$r_$j_$l + 1u], elements_$r[place_$r_$j_$l + 2u],
        elements_$r[place_$r_$j_$l + 3u],
    );
    var sum_$r_$j_$l = vec4<f32>();
#endunroll
#endunroll
#endunroll
    for (var key = first_key; key < last_key; key++) {
        let place = key_place(unit, key);
#unroll r < ROWS
        var score_$r = 0.0;
#endunroll
#unroll j < SHARES
        let keys_$j = key_share(place, $ju * SHARE_LANES + lane);
#unroll l < SHARE_LANES
        let key_$j_$l = subgroupShuffle(keys_$j, $lu);
#unroll r < ROWS
        score_$r = dot_onto(score_$r, query_$r_$j_$l, key_$j_$l);
#endunroll
#endunroll
#endunroll
#unroll r < ROWS
        score_$r = masked(visible_$r, key, score_$r);
        let highest_$r = max(maximum_$r, score_$r);
        let correction_$r = exp(maximum_$r - highest_$r);
        let weight_$r = weight_of(score_$r, highest_$r);
        maximum_$r = highest_$r;
        exp_sum_$r = fma(exp_sum_$r, correction_$r, weight_$r);
#endunroll
        let of_value = value_place(unit, key, place);
#unroll j < SHARES
        let values_$j = value_four(of_value, min($ju * SHARE_LANES + lane, VEC4S - 1u));
#unroll l < SHARE_LANES
        let value_$j_$l = subgroupShuffle(values_$j, $lu);
#unroll r < ROWS
        sum_$r_$j_$l = fma(vec4<f32>(weight_$r), value_$j_$l, sum_$r_$j_$l * correction_$r);
#endunroll
#endunroll
#endunroll
    }
#unroll r < ROWS
    let part_$r = 1.0 / select(exp_sum_$r, 1.0, exp_sum_$r == 0.0);
    let unseen_$r = select(0.0, unseen_row(), exp_sum_$r == 0.0);
#unroll j < SHARES
#unroll l < SHARE_LANES
    elements_$r[place_$r_$j_$l] = fma(sum_$r_$j_$l.x, part_$r, unseen_$r);
    elements_$r[place_$r_$j_$l + 1u] = fma(sum_$r_$j_$l.y, part_$r, unseen_$r);
    elements_$r[place_$r_$j_$l + 2u] = fma(sum_$r_$j_$l.z, part_$r, unseen_$r);
    elements_$r[place_$r_$j_$l + 3u] = fma(sum_$r_$j_$l.w, part_$r, unseen_$r);
#endunroll
#endunroll
    let row_$r = first_row + $ru * WG + lane;
    if (row_$r <= last_row) {
        let result_$r = out_place(unit, row_$r);
        for (var e = 0u; e < VALUE_SIZE; e++) {
            out[result_$r + e] = TOut(elements_$r[e]);
        }
    }
#endunroll
}
