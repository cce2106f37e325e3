// Attention of many rows by the matrix units of a device: a workgroup takes TILE_ROWS of them through a split of the
// context, KEYS at a time, each of its subgroups as many rows as a matrix has. Queries, keys, values and weights are
// halves, divided by powers of two that keep the largest of them in range; scores, softmax and sums are floats.
// Sums lie in matrices, of which a thread sees no row: what they are relative to is raised only when a score exceeds it
// by more than SLACK, so that they are seldom rescaled. The next tile is prefetched to registers.
// unchecked: places in the workgroup's memory follow from constants, rows and keys are held below the live ones.
// T: f32, f16
// TRow: f32, f16
// TMask: f32, f16, u32
// TSink: f32, f16
override WG: u32 = 128;
override LANES: u32 = 32; // of a subgroup
override KEYS: u32 = 64;
override KEY_BLOCKS: u32 = 4; // matrices
override KEY_QUADS: u32 = 16; // fours of keys, of which each of the two threads of a row takes a pair
override HEAD_BLOCKS: u32 = 4;
override LOADS: u32 = 4; // eights of keys that a thread stages, and as many of values

@group(0) @binding(0) var<storage, read_write> out: array<TRow>;
@group(0) @binding(1) var<storage, read_write> split_results: array<f32>; // see attention/store_split.wgsl
@group(0) @binding(2) var<storage, read> queries: array<TRow>;
@group(0) @binding(3) var<storage, read> keys: array<V>;
@group(0) @binding(4) var<storage, read> values: array<V>;
#if CACHE == paged
@group(0) @binding(5) var<storage, read> lines: array<vec4<i32>>;
@group(0) @binding(6) var<storage, read> block_table: array<i32>;
#if SOFTMAX == with_sinks
@group(0) @binding(7) var<storage, read> sinks: array<TSink>;
@group(0) @binding(8) var<uniform> params: Params;
#else
@group(0) @binding(7) var<uniform> params: Params;
#endif
#else
@group(0) @binding(5) var<storage, read> mask: array<TMask>;
@group(0) @binding(6) var<uniform> params: Params;
#endif

#include attention/params
#include attention/operands
#include attention/store_split
#include quantization/half_exponent

const MATRIX: u32 = 16; // rows, columns and depth
const SUBGROUPS: u32 = WG / LANES;
const TILE_ROWS: u32 = SUBGROUPS * MATRIX;
const EIGHTS: u32 = HEAD_SIZE / 8;
const PITCH: u32 = EIGHTS + 1; // one more, so that rows begin in different banks
const SCORE_PITCH: u32 = KEYS + 4;
const WEIGHT_PITCH: u32 = KEYS / 2 + 4; // in pairs
const SLACK: f32 = 2.0;

alias Left = subgroup_matrix_left<f16, MATRIX, MATRIX>;
alias Right = subgroup_matrix_right<f16, MATRIX, MATRIX>;
alias Sum = subgroup_matrix_result<f32, MATRIX, MATRIX>;

var<workgroup> key_tile: array<vec4<u32>, max(KEYS, TILE_ROWS) * PITCH>; // at first the queries
var<workgroup> value_tile: array<vec4<u32>, KEYS * PITCH>;
var<workgroup> scores: array<f32, TILE_ROWS * SCORE_PITCH>;
var<workgroup> weights: array<u32, TILE_ROWS * WEIGHT_PITCH>; // pairs of halves
var<workgroup> largest_of: array<vec2<f32>, SUBGROUPS>; // key and value
var<workgroup> rescales: array<u32, SUBGROUPS>; // whether a row of the subgroup has a correction

// Eight neighbours in floats.
struct EightFloats {
    low: vec4<f32>,
    high: vec4<f32>,
}

fn fetch_key(load: u32, unit: Unit, first_key: u32, last_key: u32) -> EightFloats {
    let place = key_place(unit, min(first_key + load / EIGHTS, last_key - 1u));
    return EightFloats(key_four(place, load % EIGHTS * 2u), key_four(place, load % EIGHTS * 2u + 1u));
}

fn fetch_value(load: u32, unit: Unit, first_key: u32, last_key: u32) -> EightFloats {
    let place = key_place(unit, min(first_key + load / EIGHTS, last_key - 1u));
    return EightFloats(value_four(place, load % EIGHTS * 2u), value_four(place, load % EIGHTS * 2u + 1u));
}

fn largest(eight: EightFloats) -> f32 {
    let four = max(abs(eight.low), abs(eight.high));
    return max(max(four.x, four.y), max(four.z, four.w));
}

fn halved(eight: EightFloats, inverse: f32) -> vec4<u32> {
    return eight_halves(eight.low * inverse, eight.high * inverse);
}

fn staged(load: u32) -> u32 {
    return load / EIGHTS * PITCH + load % EIGHTS;
}

// Two neighbouring scores of a row under the mask; keys past the end are hidden.
fn masked_pair(visible: Visible, key: u32, last_key: u32, pair: vec2<f32>) -> vec2<f32> {
    let first = masked(visible, min(key, last_key - 1u), pair.x);
    let second = masked(visible, min(key + 1u, last_key - 1u), pair.y);
    return vec2<f32>(
        select(params.hidden, first, key < last_key), select(params.hidden, second, key + 1u < last_key),
    );
}

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
#else
    let begin = work % params.splits * params.split_keys;
    var last_key = min(begin + params.split_keys, params.context);
    var seen_by_all = last_key;
    if (params.causal != 0u) {
        let last_row = min(first_row + TILE_ROWS, params.rows) - 1u;
        last_key = min(last_key, params.position + last_row / params.group + 1u);
        seen_by_all = min(last_key, params.position + first_row / params.group + 1u);
    }
#endif
    let lane = thread % LANES;
    let place = subgroupBroadcastFirst(thread / LANES);
    // Two threads have a row: each takes every other pair of its keys.
    let tile_row = place * MATRIX + lane / 2u;
    let half = lane % 2u;
    let visible = visible_to(unit, first_row + tile_row);
#if CACHE == paged
    let query = query_place(unit, first_row + tile_row);
#else
    let query = query_place(unit, min(first_row + tile_row, params.rows - 1u));
#endif
    var most = 0.0;
    for (var eight = half; eight < EIGHTS; eight += 2u) {
        let given = EightFloats(query_four(query, eight * 2u), query_four(query, eight * 2u + 1u));
        most = max(most, largest(given));
    }
    let query_scale = half_scale(max(most, subgroupShuffleXor(most, 1u)));
    for (var eight = half; eight < EIGHTS; eight += 2u) {
        let given = EightFloats(query_four(query, eight * 2u), query_four(query, eight * 2u + 1u));
        key_tile[tile_row * PITCH + eight] = halved(given, query_scale.inverse);
    }
    workgroupBarrier();
#unroll k < HEAD_BLOCKS
    let query_$k = subgroupMatrixLoad<Left, row_major>(&key_tile, place * MATRIX * PITCH + $ku * 2u, PITCH);
    var sum_$k = Sum();
#endunroll
    var relative_to = LOWEST; // what the sums of this row are divided by, as a logarithm
    var exp_sum = 0.0; // of this thread's keys
#if SOFTMAX == with_sinks
    if (work % params.splits == 0u) {
        relative_to = sink_of(unit, first_row + tile_row);
        exp_sum = select(0.0, 1.0, half == 0u); // once, as both threads add theirs up
    }
#endif
#unroll i < LOADS
    var key_$i: EightFloats;
    var value_$i: EightFloats;
#endunroll
    if (begin < last_key) {
#unroll i < LOADS
        key_$i = fetch_key(thread + $iu * WG, unit, begin, last_key);
        value_$i = fetch_value(thread + $iu * WG, unit, begin, last_key);
#endunroll
    }
    for (var first_key = begin; first_key < last_key; first_key += KEYS) {
        var both = vec2<f32>();
#unroll i < LOADS
        both = max(both, vec2<f32>(largest(key_$i), largest(value_$i)));
#endunroll
        both = subgroupMax(both);
        if (lane == 0u) {
            largest_of[place] = both;
        }
        workgroupBarrier();
        both = largest_of[0];
        for (var i = 1u; i < SUBGROUPS; i++) {
            both = max(both, largest_of[i]);
        }
        let key_scale = half_scale(both.x);
        let value_scale = half_scale(both.y);
#unroll i < LOADS
        key_tile[staged(thread + $iu * WG)] = halved(key_$i, key_scale.inverse);
        value_tile[staged(thread + $iu * WG)] = halved(value_$i, value_scale.inverse);
#endunroll
        workgroupBarrier();
        if (first_key + KEYS < last_key) {
#unroll i < LOADS
            key_$i = fetch_key(thread + $iu * WG, unit, first_key + KEYS, last_key);
            value_$i = fetch_value(thread + $iu * WG, unit, first_key + KEYS, last_key);
#endunroll
        }
#unroll j < KEY_BLOCKS
        var score_$j = Sum();
#unroll k < HEAD_BLOCKS
        score_$j = subgroupMatrixMultiplyAccumulate(
            query_$k,
            subgroupMatrixLoad<Right, col_major>(&key_tile, $ju * MATRIX * PITCH + $ku * 2u, PITCH),
            score_$j,
        );
#endunroll
        subgroupMatrixStore<row_major>(
            &scores, place * MATRIX * SCORE_PITCH + $ju * MATRIX, score_$j, SCORE_PITCH,
        );
#endunroll
        workgroupBarrier();
        let factor = query_scale.factor * key_scale.factor;
        let at = tile_row * SCORE_PITCH + half * 2u;
        // What values were divided by is taken on by their weights, as logarithms.
        let shift = log(value_scale.factor);
        var top = LOWEST;
#unroll i < KEY_QUADS
        var pair_$i = vec2<f32>(scores[at + $iu * 4u], scores[at + $iu * 4u + 1u]) * factor;
#endunroll
        // Where every row sees every key there is nothing to hide.
#if CACHE == paged
        if (SOFTCAP || first_key < of_last_row.first || first_key + KEYS > seen_by_all) {
#else
        if (MASK != 0u || first_key + KEYS > seen_by_all) {
#endif
#unroll i < KEY_QUADS
            pair_$i = masked_pair(visible, first_key + $iu * 4u + half * 2u, last_key, pair_$i);
#endunroll
        }
#unroll i < KEY_QUADS
        top = max(top, max(pair_$i.x, pair_$i.y));
#endunroll
        top = max(top, subgroupShuffleXor(top, 1u)) + shift;
        let raised = top > relative_to + SLACK;
        let had = relative_to;
        relative_to = select(had, top, raised);
        let correction = exp(had - relative_to);
        let less = shift - relative_to;
        var mine = 0.0;
#unroll i < KEY_QUADS
        pair_$i = select(exp(pair_$i + less), vec2<f32>(), pair_$i < vec2<f32>(LOWEST));
        mine += pair_$i.x + pair_$i.y;
        weights[tile_row * WEIGHT_PITCH + $iu * 2u + half] = pack2x16float(pair_$i);
#endunroll
        exp_sum = exp_sum * correction + mine * value_scale.inverse;
        let rescaled = subgroupAny(raised && had > LOWEST);
        if (lane == 0u) {
            rescales[place] = u32(rescaled);
        }
        let all = workgroupUniformLoad(&rescales);
        var any = 0u;
        for (var i = 0u; i < SUBGROUPS; i++) {
            any |= all[i];
        }
        if (any != 0u) {
#unroll k < HEAD_BLOCKS
            subgroupMatrixStore<row_major>(&scores, place * MATRIX * SCORE_PITCH, sum_$k, SCORE_PITCH);
            workgroupBarrier();
            for (var i = half; i < MATRIX; i += 2u) {
                scores[tile_row * SCORE_PITCH + i] *= correction;
            }
            workgroupBarrier();
            sum_$k = subgroupMatrixLoad<Sum, row_major>(&scores, place * MATRIX * SCORE_PITCH, SCORE_PITCH);
            workgroupBarrier();
#endunroll
        }
#unroll j < KEY_BLOCKS
        let weight_$j = subgroupMatrixLoad<Left, row_major>(
            &weights, place * MATRIX * WEIGHT_PITCH + $ju * MATRIX / 2u, WEIGHT_PITCH,
        );
#unroll k < HEAD_BLOCKS
        sum_$k = subgroupMatrixMultiplyAccumulate(
            weight_$j,
            subgroupMatrixLoad<Right, row_major>(&value_tile, $ju * MATRIX * PITCH + $ku * 2u, PITCH),
            sum_$k,
        );
#endunroll
#endunroll
    }
    let whole = exp_sum + subgroupShuffleXor(exp_sum, 1u);
#if CACHE == paged
    let exists = first_row + tile_row < unit.rows;
#else
    let exists = first_row + tile_row < params.rows;
#endif
    workgroupBarrier();
#unroll k < HEAD_BLOCKS
    subgroupMatrixStore<row_major>(&scores, place * MATRIX * SCORE_PITCH, sum_$k, SCORE_PITCH);
    workgroupBarrier();
    for (var four = half; exists && four < MATRIX / 4u; four += 2u) {
        let first = tile_row * SCORE_PITCH + four * 4u;
        let sum = vec4<f32>(scores[first], scores[first + 1u], scores[first + 2u], scores[first + 3u]);
        let own = $ku * MATRIX / 4u + four;
        if (params.splits > 1u) {
            store_split(work * TILE_ROWS + tile_row, own, sum, relative_to, whole);
        } else {
            store(query, own, sum / select(whole, 1.0, whole == 0.0));
        }
    }
    workgroupBarrier();
#endunroll
}
