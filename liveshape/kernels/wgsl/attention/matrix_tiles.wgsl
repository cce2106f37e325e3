// Attention of many rows by the matrix units of a device: a workgroup takes TILE_ROWS of them through a split of the
// context, KEYS at a time, each of its subgroups as many rows as a matrix has. Queries, keys, values and weights are halves:
// keys and values those of the tensors themselves (eight to a load), of tiles that attention/half_cache.wgsl wrote, or of
// pages as they are staged; what is made is divided by powers of two that keep the largest number in range, as queries are.
// Scores, softmax and sums are floats.
//
// A step has four barriers. Behind the first weights were read, and scores take their place; behind the second keys are
// free, and values and the keys of the next step are staged while scores become weights. Behind the third these are stored
// where their scores were, and the fourth tells all whether sums are rescaled: the less memory, the more workgroups run.
// Sums lie in matrices, of which a thread sees no row: what they are relative to is raised only when a score exceeds it
// by more than SLACK, so that they are seldom rescaled.
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
@group(0) @binding(8) var<uniform> params: Params;
#else
@group(0) @binding(7) var<uniform> params: Params;
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
@group(0) @binding(7) var<uniform> params: Params;
#else
@group(0) @binding(6) var<uniform> params: Params;
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
#include quantization/half_exponent

const MATRIX: u32 = 16; // rows, columns and depth
const SUBGROUPS: u32 = WG / LANES;
const TILE_ROWS: u32 = SUBGROUPS * MATRIX;
const EIGHTS: u32 = (HEAD_SIZE + MATRIX - 1) / MATRIX * MATRIX / 8; // of a head, with zeros up to whole matrices
const WHOLE_MATRICES: bool = HEAD_SIZE % MATRIX == 0;
const PITCH: u32 = EIGHTS + 1; // one more, so that rows begin in different banks
const SCORE_PITCH: u32 = KEYS / 4 + 2; // in fours: units store two of a row to eight banks at once
const VALUES_AT: u32 = KEYS * PITCH;
const SLACK: f32 = 5.0; // weights stay below exp(5) and halves
const LOG2_E: f32 = 1.4426950408889634;

alias Left = subgroup_matrix_left<f16, MATRIX, MATRIX>;
alias Right = subgroup_matrix_right<f16, MATRIX, MATRIX>;
alias Sum = subgroup_matrix_result<f32, MATRIX, MATRIX>;

var<workgroup> tile: array<vec4<u32>, 2 * KEYS * PITCH>; // keys, then values
var<workgroup> scores: array<vec4<u32>, TILE_ROWS * max(SCORE_PITCH, PITCH)>; // at first the queries; then weights, too
#if CACHE == paged
var<workgroup> largest_of: array<vec4<f32>, SUBGROUPS>; // of the keys of the next step, and of the values of this
#endif
// Whether a row has a correction. Units read arrays of workgroup memory wrongly whose place is no multiple of 16 bytes, as
// those behind a number alone have (H200): all here are made of as many.
var<workgroup> rescaled: vec4<u32>;

// Eight neighbours in floats.
struct EightFloats {
    low: vec4<f32>,
    high: vec4<f32>,
}

fn stage_query(row: u32, eight: u32, halves: vec4<u32>) {
    scores[row * PITCH + eight] = halves;
}

#if HALVES == made
fn query_eight(place: u32, eight: u32) -> EightFloats {
    if (!WHOLE_MATRICES && eight * 8u >= HEAD_SIZE) {
        return EightFloats();
    }
    return EightFloats(query_four(place, eight * 2u), query_four(place, eight * 2u + 1u));
}
#endif

fn largest(eight: EightFloats) -> f32 {
    let four = max(abs(eight.low), abs(eight.high));
    return max(max(four.x, four.y), max(four.z, four.w));
}

// Past a step, where threads are not a divisor of it, its last load again.
fn load_of(thread: u32) -> u32 {
    return min(thread, KEYS * EIGHTS - 1u);
}

fn halved(eight: EightFloats, inverse: f32) -> vec4<u32> {
    return eight_halves(eight.low * inverse, eight.high * inverse);
}

#if CACHE == paged
fn largest_of_all() -> vec2<f32> {
    var both = largest_of[0].xy;
    for (var i = 1u; i < SUBGROUPS; i++) {
        both = max(both, largest_of[i].xy);
    }
    return both;
}
#endif

fn staged(load: u32) -> u32 {
    return load / EIGHTS * PITCH + load % EIGHTS;
}

// Values lie in the order of their weights: a thread has the first fours of a matrix, and the third, or the other two.
fn staged_value(load: u32) -> u32 {
    let key = load / EIGHTS;
    let place = (key & ~12u) | ((key & 4u) << 1u) | ((key & 8u) >> 1u);
    return VALUES_AT + place * PITCH + load % EIGHTS;
}

// Eight neighbours of keys, and of values, as a load of the step from a key on brings them: of what begins at `first`.
#if CACHE == paged
alias Eight = EightFloats;

fn key_eight(unit: Unit, key: u32, last_key: u32, load: u32) -> Eight {
    if (!WHOLE_MATRICES && load % EIGHTS * 8u >= HEAD_SIZE) {
        return Eight();
    }
    let place = key_place(unit, min(key + load / EIGHTS, last_key - 1u));
    return Eight(key_four(place, load % EIGHTS * 2u), key_four(place, load % EIGHTS * 2u + 1u));
}

fn value_eight(unit: Unit, key: u32, last_key: u32, load: u32) -> Eight {
    if (!WHOLE_MATRICES && load % EIGHTS * 8u >= HEAD_SIZE) {
        return Eight();
    }
    let place = key_place(unit, min(key + load / EIGHTS, last_key - 1u));
    return Eight(value_four(place, load % EIGHTS * 2u), value_four(place, load % EIGHTS * 2u + 1u));
}
#elif HALVES == given
alias Eight = vec4<u32>;

fn key_eight(unit: Unit, key: u32, last_key: u32, load: u32) -> Eight {
    if (KEY_SIZE < EIGHTS * 8u && load % EIGHTS * 8u >= KEY_SIZE) {
        return Eight();
    }
    let first = params.key_start + unit.batch * params.key_batch + unit.head * params.key_head;
    return keys[first + min(key + load / EIGHTS, last_key - 1u) * params.key_row + load % EIGHTS];
}

fn value_eight(unit: Unit, key: u32, last_key: u32, load: u32) -> Eight {
    if (VALUE_SIZE < EIGHTS * 8u && load % EIGHTS * 8u >= VALUE_SIZE) {
        return Eight();
    }
    let first = params.value_start + unit.batch * params.value_batch + unit.head * params.value_head;
    return values[first + min(key + load / EIGHTS, last_key - 1u) * params.value_row + load % EIGHTS];
}
#else
alias Eight = vec4<u32>;

fn tile_of(unit: Unit, key: u32, last_key: u32) -> u32 {
    let one_cache = params.key_batch == 0u && params.value_batch == 0u;
    let head = select(unit.batch, 0u, one_cache) * params.key_heads + unit.head;
    return head * ((params.context + KEYS - 1u) / KEYS) + min(key, last_key - 1u) / KEYS;
}

fn key_eight(unit: Unit, key: u32, last_key: u32, load: u32) -> Eight {
    return halves[tile_of(unit, key, last_key) * 2u * KEYS * EIGHTS + load];
}

fn value_eight(unit: Unit, key: u32, last_key: u32, load: u32) -> Eight {
    return halves[(tile_of(unit, key, last_key) * 2u + 1u) * KEYS * EIGHTS + load];
}
#endif

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
    let own_row = place * MATRIX;
    // Two threads have a row: each takes every other four of its keys.
    let half = lane % 2u;
    // The first keys and values are on their way while queries become halves.
#unroll i < LOADS
    var key_$i: Eight;
    var value_$i: Eight;
#endunroll
    if (begin < last_key) {
#unroll i < LOADS
        key_$i = key_eight(unit, begin, last_key, load_of(thread + $iu * WG));
        value_$i = value_eight(unit, begin, last_key, load_of(thread + $iu * WG));
#endunroll
    }
    let tile_row = own_row + lane / 2u;
    let visible = visible_to(unit, first_row + tile_row);
    let real_row = min(first_row + tile_row, rows - 1u);
#if HALVES == given
    let query_scale = params.scale; // queries are staged as they are
#unroll k < HEAD_BLOCKS
    {
        let load = thread + $ku * WG;
        let row = min(first_row + load / EIGHTS, rows - 1u);
        var halves = vec4<u32>();
        if (KEY_SIZE == EIGHTS * 8u || load % EIGHTS * 8u < KEY_SIZE) {
            halves = queries[query_place(unit, row) / 8u + load % EIGHTS];
        }
        stage_query(load / EIGHTS, load % EIGHTS, halves);
    }
#endunroll
#else
    var query_scale = 0.0;
    {
        let query = query_place(unit, real_row);
        var most = 0.0;
#unroll k < HEAD_BLOCKS
        let given_$k = query_eight(query, half + $ku * 2u);
        most = max(most, largest(given_$k));
#endunroll
        let scale = half_scale(max(most, subgroupShuffleXor(most, 1u)));
        query_scale = scale.factor;
#unroll k < HEAD_BLOCKS
        stage_query(tile_row, half + $ku * 2u, halved(given_$k, scale.inverse));
#endunroll
    }
#endif
    var relative_to = LOWEST; // what the sums of this row are divided by, as a logarithm
    var exp_sum = 0.0; // of this thread's keys
#if SOFTMAX == with_sinks
    if (work % params.splits == 0u) {
        relative_to = sink_of(unit, real_row);
        exp_sum = select(0.0, 1.0, half == 0u); // once, as both threads add theirs up
    }
#endif
#if CACHE == paged
    var most_key = 0.0;
#unroll i < LOADS
    most_key = max(most_key, largest(key_$i));
#endunroll
    most_key = subgroupMax(most_key);
    if (lane == 0u) {
        largest_of[place] = vec4<f32>(most_key, vec3<f32>());
    }
    workgroupBarrier();
    var key_scale = half_scale(largest_of_all().x);
#unroll i < LOADS
    tile[staged(load_of(thread + $iu * WG))] = halved(key_$i, key_scale.inverse);
#endunroll
#else
#unroll i < LOADS
    tile[staged(load_of(thread + $iu * WG))] = key_$i;
#endunroll
#endif
    workgroupBarrier();
#unroll k < HEAD_BLOCKS
    let query_$k = subgroupMatrixLoad<Left, row_major>(&scores, own_row * PITCH + $ku * 2u, PITCH);
    var sum_$k = Sum();
#endunroll
    workgroupBarrier();
    if (begin + KEYS < last_key) {
#unroll i < LOADS
        key_$i = key_eight(unit, begin + KEYS, last_key, load_of(thread + $iu * WG));
#endunroll
    }
    for (var first_key = begin; first_key < last_key; first_key += KEYS) {
        workgroupBarrier(); // weights were read
        if (thread == 0u) {
            rescaled = vec4<u32>(0u);
        }
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
#unroll j < KEY_BLOCKS
        var score_$j = Sum();
#unroll k < HEAD_BLOCKS
        let right_$j_$k = subgroupMatrixLoad<Right, col_major>(&tile, $ju * MATRIX * PITCH + $ku * 2u, PITCH);
        score_$j = subgroupMatrixMultiplyAccumulate(query_$k, right_$j_$k, score_$j);
#endunroll
        subgroupMatrixStore<row_major>(
            &scores, own_row * SCORE_PITCH + $ju * MATRIX / 4u, score_$j, SCORE_PITCH,
        );
#endunroll
        workgroupBarrier();
#if CACHE == paged
        let key_factor = key_scale.factor;
        let largest_of_next = largest_of_all();
        let value_scale = half_scale(largest_of_next.y);
        let value_factor = value_scale.factor;
        key_scale = half_scale(largest_of_next.x);
#unroll i < LOADS
        tile[staged_value(load_of(thread + $iu * WG))] = halved(value_$i, value_scale.inverse);
        tile[staged(load_of(thread + $iu * WG))] = halved(key_$i, key_scale.inverse);
#endunroll
#else
#unroll i < LOADS
        tile[staged_value(load_of(thread + $iu * WG))] = value_$i;
        tile[staged(load_of(thread + $iu * WG))] = key_$i;
#endunroll
#if HALVES == given
        let key_factor = 1.0;
        let value_factor = 1.0;
#else
        let of_tile = factors[tile_of(unit, first_key, last_key)];
        let key_factor = of_tile.x;
        let value_factor = of_tile.y;
#endif
#endif
#unroll i < LOADS
        value_$i = value_eight(unit, first_key + KEYS, last_key, load_of(thread + $iu * WG));
        key_$i = key_eight(unit, first_key + 2u * KEYS, last_key, load_of(thread + $iu * WG));
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
        var correction = 1.0;
        {
            let factor = query_scale * key_factor;
            let at = tile_row * SCORE_PITCH + half;
#unroll j < KEY_BLOCKS
            var low_$j = bitcast<vec4<f32>>(scores[at + $ju * 4u]);
            var high_$j = bitcast<vec4<f32>>(scores[at + $ju * 4u + 2u]);
#endunroll
            if (hides) {
                let key = first_key + half * 4u;
#unroll j < KEY_BLOCKS
                low_$j = masked_four(visible, key + $ju * MATRIX, last_key, low_$j * factor);
                high_$j = masked_four(visible, key + $ju * MATRIX + 8u, last_key, high_$j * factor);
#endunroll
            }
            var tops = low_0;
#unroll j < KEY_BLOCKS
            tops = max(tops, max(low_$j, high_$j));
#endunroll
            var top = max(max(tops.x, tops.y), max(tops.z, tops.w));
            top = max(max(top, subgroupShuffleXor(top, 1u)) * select(factor, 1.0, hides), LOWEST);
            let raised = top + shift > relative_to + SLACK;
            if (raised) {
                correction = exp(relative_to - (top + shift));
                relative_to = top + shift;
            }
            if (hides) {
                // A mask of the least float32 makes every score of a row LOWEST: such keys count alike, and the shift
                // must not vanish beside it.
#unroll j < KEY_BLOCKS
                low_$j = select(exp(low_$j - relative_to + shift), vec4<f32>(), low_$j < vec4<f32>(LOWEST));
                high_$j = select(exp(high_$j - relative_to + shift), vec4<f32>(), high_$j < vec4<f32>(LOWEST));
#endunroll
            } else {
                let less = vec4<f32>((shift - relative_to) * LOG2_E);
#unroll j < KEY_BLOCKS
                low_$j = exp2(fma(low_$j, vec4<f32>(factor * LOG2_E), less));
                high_$j = exp2(fma(high_$j, vec4<f32>(factor * LOG2_E), less));
#endunroll
            }
            // Where this thread's own scores were, eight to a place.
            var mine = vec4<f32>();
#unroll j < KEY_BLOCKS
            mine += low_$j + high_$j;
            scores[at + $ju * 4u] = eight_halves(low_$j, high_$j);
#endunroll
            grown = grown || (raised && exp_sum > 0.0);
            exp_sum = exp_sum * correction + (mine.x + mine.y + mine.z + mine.w) / value_factor;
        }
        if (grown) {
            rescaled = vec4<u32>(1u); // whoever else writes it writes the same
        }
        let is_rescaled = workgroupUniformLoad(&rescaled).x != 0u;
#unroll j < KEY_BLOCKS
        let weight_$j = subgroupMatrixLoad<Left, row_major>(
            &scores, own_row * SCORE_PITCH + $ju * MATRIX / 4u, SCORE_PITCH,
        );
#endunroll
        if (is_rescaled) {
            workgroupBarrier(); // all weights were read
#unroll k < HEAD_BLOCKS
            subgroupMatrixStore<row_major>(&scores, own_row * SCORE_PITCH, sum_$k, SCORE_PITCH);
            workgroupBarrier();
            for (var i = half; i < MATRIX / 4u; i += 2u) {
                let at = tile_row * SCORE_PITCH + i;
                scores[at] = bitcast<vec4<u32>>(bitcast<vec4<f32>>(scores[at]) * correction);
            }
            workgroupBarrier();
            sum_$k = subgroupMatrixLoad<Sum, row_major>(
                &scores, own_row * SCORE_PITCH, SCORE_PITCH,
            );
            workgroupBarrier();
#endunroll
        }
#unroll j < KEY_BLOCKS
#unroll k < HEAD_BLOCKS
        let value_matrix_$j_$k = subgroupMatrixLoad<Right, row_major>(
            &tile, VALUES_AT + $ju * MATRIX * PITCH + $ku * 2u, PITCH,
        );
        sum_$k = subgroupMatrixMultiplyAccumulate(weight_$j, value_matrix_$j_$k, sum_$k);
#endunroll
#endunroll
    }
    workgroupBarrier();
    let whole = exp_sum + subgroupShuffleXor(exp_sum, 1u);
    if (half == 0u) {
        let place_of_row = out_place(unit, real_row);
        // Where keys were: the sum of exponentials, what sums are relative to, and where a row goes.
        tile[tile_row] = vec4<u32>(bitcast<u32>(whole), bitcast<u32>(relative_to), place_of_row, 0u);
    }
    workgroupBarrier();
    // As many matrices of sums at a time as there is room where the scores were; neighbours store neighbours of a row.
#unroll k < HEAD_BLOCKS
    subgroupMatrixStore<row_major>(
        &scores, own_row * SCORE_PITCH + $ku % KEY_BLOCKS * MATRIX / 4u, sum_$k, SCORE_PITCH,
    );
    if ($ku % KEY_BLOCKS == KEY_BLOCKS - 1u || $ku == HEAD_BLOCKS - 1u) {
        workgroupBarrier();
        const FOURS = ($ku % KEY_BLOCKS + 1u) * MATRIX / 4u;
        for (var i = lane; i < MATRIX * FOURS; i += LANES) {
            let row = own_row + i / FOURS;
            let own = $ku / KEY_BLOCKS * KEY_BLOCKS * MATRIX / 4u + i % FOURS;
            if (first_row + row >= rows || (!WHOLE_MATRICES && own >= VEC4S)) {
                continue; // past the rows, or past the head
            }
            let sum = bitcast<vec4<f32>>(scores[row * SCORE_PITCH + i % FOURS]);
            let end = tile[row];
            let whole = bitcast<f32>(end.x);
            if (params.splits > 1u) {
                store_split(work * TILE_ROWS + row, own, sum, bitcast<f32>(end.y), whole);
            } else {
                store(end.z, own, averaged(sum, whole));
            }
        }
        workgroupBarrier();
    }
#endunroll
}
