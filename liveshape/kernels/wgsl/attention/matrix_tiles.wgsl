// Attention of many rows by the matrix units of a device: a workgroup takes TILE_ROWS of them through a split of the
// context, KEYS at a time, each of its subgroups as many rows as a matrix has. Queries, keys, values and weights are
// halves, divided by powers of two that keep the largest of them in range: a contiguous cache was made halves before,
// pages are as they are staged. Scores, softmax and sums are floats.
// Sums lie in matrices, of which a thread sees no row: what they are relative to is raised only when a score exceeds it
// by more than SLACK, so that they are seldom rescaled. The next tile is prefetched to registers.
// composable: an element of the result is stored once.
// scratch halves, factors
// unchecked: places in the workgroup's memory follow from constants, rows and keys are held below the live ones.
// T: f32, f16
// TRow: f32, f16
// TOut: f32, f16
// TMask: f32, f16, u32
// TBias: f32, f16
// TSink: f32, f16
override WG: u32 = 128;
override LANES: u32 = 32; // of a subgroup
override KEYS: u32 = 32;
override KEY_BLOCKS: u32 = 2; // matrices
override KEY_EIGHTS: u32 = 4; // of which each of the two threads of a row takes a half
override HEAD_BLOCKS: u32 = 4;
override LOADS: u32 = 2; // eights of keys that a thread stages, and as many of values

@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read_write> split_results: array<f32>; // see attention/store_split.wgsl
@group(0) @binding(2) var<storage, read> queries: array<vec4<TRow>>;
#if CACHE == paged
@group(0) @binding(3) var<storage, read> keys: array<V>;
@group(0) @binding(4) var<storage, read> values: array<V>;
@group(0) @binding(5) var<storage, read> lines: array<vec4<i32>>;
@group(0) @binding(6) var<storage, read> block_table: array<i32>;
#if SOFTMAX == with_sinks
@group(0) @binding(7) var<storage, read> sinks: array<TSink>;
@group(0) @binding(8) var<uniform> params: Params;
#else
@group(0) @binding(7) var<uniform> params: Params;
#endif
#else
@group(0) @binding(3) var<storage, read> halves: array<vec4<u32>>; // see attention/half_cache.wgsl
@group(0) @binding(4) var<storage, read> factors: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> mask: array<TMask>;
#if BIAS == added
@group(0) @binding(6) var<storage, read> bias: array<TBias>;
@group(0) @binding(7) var<uniform> params: Params;
#else
@group(0) @binding(6) var<uniform> params: Params;
#endif
#endif

#include attention/params
#include attention/operands
#include attention/row_fours
#include attention/head_width
#if CACHE == paged
#include attention/keys_and_values
#endif
#include attention/store_split
#include quantization/half_exponent

const MATRIX: u32 = 16; // rows, columns and depth
const SUBGROUPS: u32 = WG / LANES;
const TILE_ROWS: u32 = SUBGROUPS * MATRIX;
const EIGHTS: u32 = (HEAD_SIZE + MATRIX - 1) / MATRIX * MATRIX / 8; // of a head, with zeros up to whole matrices
const WHOLE_MATRICES: bool = HEAD_SIZE % MATRIX == 0;
const PITCH: u32 = EIGHTS + 1; // one more, so that rows begin in different banks
const SCORE_PITCH: u32 = KEYS / 4 + 1; // in fours
const WEIGHT_PITCH: u32 = KEYS / 4 + 2;
const SLACK: f32 = 2.0;
const LOG2_E: f32 = 1.4426950408889634;

alias Left = subgroup_matrix_left<f16, MATRIX, MATRIX>;
alias Right = subgroup_matrix_right<f16, MATRIX, MATRIX>;
alias Sum = subgroup_matrix_result<f32, MATRIX, MATRIX>;

var<workgroup> key_tile: array<vec4<u32>, max(KEYS, TILE_ROWS) * PITCH>; // at first the queries
var<workgroup> value_tile: array<vec4<u32>, KEYS * PITCH>;
var<workgroup> scores: array<vec4<f32>, TILE_ROWS * SCORE_PITCH>;
var<workgroup> weights: array<vec2<u32>, TILE_ROWS * WEIGHT_PITCH>; // fours of halves
#if CACHE == paged
var<workgroup> largest_of: array<vec2<f32>, SUBGROUPS>; // key and value
#endif
var<workgroup> rescales: array<u32, SUBGROUPS>; // whether a row of the subgroup has a correction

// Eight neighbours in floats.
struct EightFloats {
    low: vec4<f32>,
    high: vec4<f32>,
}

#if CACHE == paged
fn fetch_key(load: u32, unit: Unit, first_key: u32, last_key: u32) -> EightFloats {
    if (!WHOLE_MATRICES && load % EIGHTS * 8u >= HEAD_SIZE) {
        return EightFloats();
    }
    let place = key_place(unit, min(first_key + load / EIGHTS, last_key - 1u));
    return EightFloats(key_four(place, load % EIGHTS * 2u), key_four(place, load % EIGHTS * 2u + 1u));
}

fn fetch_value(load: u32, unit: Unit, first_key: u32, last_key: u32) -> EightFloats {
    if (!WHOLE_MATRICES && load % EIGHTS * 8u >= HEAD_SIZE) {
        return EightFloats();
    }
    let place = key_place(unit, min(first_key + load / EIGHTS, last_key - 1u));
    return EightFloats(value_four(place, load % EIGHTS * 2u), value_four(place, load % EIGHTS * 2u + 1u));
}
#endif

fn query_eight(place: u32, eight: u32) -> EightFloats {
    if (!WHOLE_MATRICES && eight * 8u >= HEAD_SIZE) {
        return EightFloats();
    }
    return EightFloats(query_four(place, eight * 2u), query_four(place, eight * 2u + 1u));
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

// A score under the mask; keys past the end are hidden.
fn masked_score(visible: Visible, key: u32, last_key: u32, score: f32) -> f32 {
    return select(params.hidden, masked(visible, min(key, last_key - 1u), score), key < last_key);
}

fn masked_four(visible: Visible, key: u32, last_key: u32, four: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(
        masked_score(visible, key, last_key, four.x), masked_score(visible, key + 1u, last_key, four.y),
        masked_score(visible, key + 2u, last_key, four.z), masked_score(visible, key + 3u, last_key, four.w),
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
    // Two threads have a row: each takes every other four of its keys.
    let tile_row = place * MATRIX + lane / 2u;
    let half = lane % 2u;
    let visible = visible_to(unit, first_row + tile_row);
#if CACHE == paged
    let real_row = first_row + tile_row;
#else
    let real_row = min(first_row + tile_row, params.rows - 1u);
#endif
    let query = query_place(unit, real_row);
#unroll k < HEAD_BLOCKS
    let given_$k = query_eight(query, half + $ku * 2u);
#endunroll
    // The first tile is on its way while queries become halves.
#if CACHE == paged
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
#else
    let tiles = (params.context + KEYS - 1u) / KEYS;
    let one_cache = params.key_batch == 0u && params.value_batch == 0u;
    let first_tile = (select(unit.batch, 0u, one_cache) * params.key_heads + unit.head) * tiles;
#unroll i < LOADS
    var key_$i = vec4<u32>();
    var value_$i = vec4<u32>();
#endunroll
    if (begin < last_key) {
        let first = (first_tile + begin / KEYS) * 2u * KEYS * EIGHTS + thread;
#unroll i < LOADS
        key_$i = halves[first + $iu * WG];
        value_$i = halves[first + KEYS * EIGHTS + $iu * WG];
#endunroll
    }
#endif
    var most = 0.0;
#unroll k < HEAD_BLOCKS
    most = max(most, largest(given_$k));
#endunroll
    let query_scale = half_scale(max(most, subgroupShuffleXor(most, 1u)));
#unroll k < HEAD_BLOCKS
    {
        let eight = half + $ku * 2u;
        key_tile[tile_row * PITCH + eight] = halved(given_$k, query_scale.inverse);
    }
#endunroll
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
    for (var first_key = begin; first_key < last_key; first_key += KEYS) {
#if CACHE == paged
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
#else
        workgroupBarrier(); // the tile before was read
#unroll i < LOADS
        key_tile[staged(thread + $iu * WG)] = key_$i;
        value_tile[staged(thread + $iu * WG)] = value_$i;
#endunroll
        workgroupBarrier();
        let tile = first_tile + first_key / KEYS;
        let of_tile = factors[tile];
        let key_scale = HalfScale(of_tile.x, 1.0 / of_tile.x);
        let value_scale = HalfScale(of_tile.y, 1.0 / of_tile.y);
        let next = (tile + select(0u, 1u, first_key + KEYS < last_key)) * 2u * KEYS * EIGHTS + thread;
#unroll i < LOADS
        key_$i = halves[next + $iu * WG];
        value_$i = halves[next + KEYS * EIGHTS + $iu * WG];
#endunroll
#endif
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
            &scores, place * MATRIX * SCORE_PITCH + $ju * MATRIX / 4u, score_$j, SCORE_PITCH,
        );
#endunroll
        workgroupBarrier();
        let factor = query_scale.factor * key_scale.factor;
        // Where every row sees every key there is nothing to hide.
#if CACHE == paged
        let hides = SOFTCAP || first_key < of_last_row.first || first_key + KEYS > seen_by_all;
#else
        let hides = CHANGES_SCORES || first_key + KEYS > seen_by_all;
#endif
        let at = tile_row * SCORE_PITCH + half;
#unroll i < KEY_EIGHTS
        var four_$i = scores[at + $iu * 2u];
#endunroll
        if (hides) {
#unroll i < KEY_EIGHTS
            four_$i = masked_four(visible, first_key + $iu * 8u + half * 4u, last_key, four_$i * factor);
#endunroll
        }
        var tops = four_0;
#unroll i < KEY_EIGHTS
        tops = max(tops, four_$i);
#endunroll
        var top = max(max(tops.x, tops.y), max(tops.z, tops.w));
        top = max(max(top, subgroupShuffleXor(top, 1u)) * select(factor, 1.0, hides), LOWEST);
        // What values were divided by is taken on by their weights, as logarithms.
        let shift = log(value_scale.factor);
        let raised = top + shift > relative_to + SLACK;
        let had = relative_to;
        relative_to = select(had, top + shift, raised);
        let correction = exp(had - relative_to);
        let less = shift - relative_to;
        if (hides) {
            // A mask of the least float32 makes every score of a row LOWEST: such keys count alike, and the shift must
            // not vanish beside it.
#unroll i < KEY_EIGHTS
            four_$i = select(exp(four_$i - relative_to + shift), vec4<f32>(), four_$i < vec4<f32>(LOWEST));
#endunroll
        } else {
#unroll i < KEY_EIGHTS
            four_$i = exp2(fma(four_$i, vec4<f32>(factor * LOG2_E), vec4<f32>(less * LOG2_E)));
#endunroll
        }
        var mine = vec4<f32>();
#unroll i < KEY_EIGHTS
        mine += four_$i;
        weights[tile_row * WEIGHT_PITCH + $iu * 2u + half] =
            vec2<u32>(pack2x16float(four_$i.xy), pack2x16float(four_$i.zw));
#endunroll
        let rescaled = subgroupAny(raised && exp_sum > 0.0);
        exp_sum = exp_sum * correction + (mine.x + mine.y + mine.z + mine.w) * value_scale.inverse;
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
            for (var i = half; i < MATRIX / 4u; i += 2u) {
                scores[tile_row * SCORE_PITCH + i] *= correction;
            }
            workgroupBarrier();
            sum_$k = subgroupMatrixLoad<Sum, row_major>(&scores, place * MATRIX * SCORE_PITCH, SCORE_PITCH);
            workgroupBarrier();
#endunroll
        }
#unroll j < KEY_BLOCKS
        let weight_$j = subgroupMatrixLoad<Left, row_major>(
            &weights, place * MATRIX * WEIGHT_PITCH + $ju * MATRIX / 4u, WEIGHT_PITCH,
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
    // As many matrices of sums at a time as there is room where the scores were.
#unroll k < HEAD_BLOCKS
    subgroupMatrixStore<row_major>(
        &scores, place * MATRIX * SCORE_PITCH + $ku % KEY_BLOCKS * MATRIX / 4u, sum_$k, SCORE_PITCH,
    );
    if ($ku % KEY_BLOCKS == KEY_BLOCKS - 1u || $ku == HEAD_BLOCKS - 1u) {
        workgroupBarrier();
        for (var four = half; exists && four < ($ku % KEY_BLOCKS + 1u) * MATRIX / 4u; four += 2u) {
            let sum = scores[tile_row * SCORE_PITCH + four];
            let own = $ku / KEY_BLOCKS * KEY_BLOCKS * MATRIX / 4u + four;
            if (!WHOLE_MATRICES && own >= VEC4S) {
                break; // past the head
            }
            if (params.splits > 1u) {
                store_split(work * TILE_ROWS + tile_row, own, sum, relative_to, whole);
            } else {
                store(out_place(unit, real_row), own, averaged(sum, whole));
            }
        }
        workgroupBarrier();
    }
#endunroll
}
