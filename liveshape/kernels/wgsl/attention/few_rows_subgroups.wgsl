// Attention of few rows by subgroup shuffles. A group of LANES threads goes through a split of the context on its
// own: it loads a key and its value together, and each thread has the softmax of one row. Groups are combined once, at
// the end of the split.
// composable: an element of the result is stored once.
// unchecked: places in the workgroup's memory follow from constants, rows and keys are held below the live ones.
// T: f32, f16
// TRow: f32, f16
// TOut: f32, f16
// TMask: f32, f16, u32
// TBias: f32, f16
// TSink: f32, f16
override WG: u32 = 128;
override ROWS: u32 = 1; // a power of two, at most LANES
override LANES: u32 = 16; // a power of two, at most 16 and a subgroup
override PREFETCH_KEYS: u32 = 4; // keys that a thread prefetches
override COMBINE_THREADS: u32 = 1; // of a vec4 of a row, a power of two, at most LANES and LANE_GROUPS

@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read_write> split_results: array<f32>; // see attention/store_split.wgsl
@group(0) @binding(2) var<storage, read> queries: array<TRow>;
@group(0) @binding(3) var<storage, read> keys: array<V>;
@group(0) @binding(4) var<storage, read> values: array<V>;
#if CACHE == paged
@group(0) @binding(5) var<storage, read> lines: array<vec4<i32>>;
@group(0) @binding(6) var<storage, read> block_table: array<i32>;
#if SOFTMAX == with_sinks
@group(0) @binding(7) var<storage, read> sinks: array<TSink>;
#endif
#else
@group(0) @binding(5) var<storage, read> mask: array<TMask>;
#if BIAS == added
@group(0) @binding(6) var<storage, read> bias: array<TBias>;
#endif
#endif

#include attention/params
#include attention/operands
#include attention/row_elements
#include attention/keys_and_values
#include attention/store_split
#include attention/shuffles

const SLICE: u32 = (VEC4S + LANES - 1) / LANES; // vec4s of a query that a thread keeps
const QUERY_VEC4S: u32 = ROWS * SLICE;
const ROW_LANES: u32 = LANES / ROWS; // lanes with the softmax of the same row
const LANE_GROUPS: u32 = WG / LANES;
const STRIDE: u32 = LANE_GROUPS * PREFETCH_KEYS;
const PREFETCH_VEC4S: u32 = PREFETCH_KEYS * SLICE;
const DOTS: u32 = PREFETCH_KEYS * ROWS;
const PARTIAL_ROWS: u32 = LANE_GROUPS * ROWS;
const ROW_VEC4S: u32 = ROWS * VEC4S;
const PARTIAL_VEC4S: u32 = LANE_GROUPS * ROW_VEC4S;
const COMBINED_VEC4S: u32 = WG / COMBINE_THREADS; // that are combined side by side

var<private> prefetched_keys: array<vec4<f32>, PREFETCH_VEC4S>;
var<private> prefetched_values: array<vec4<f32>, PREFETCH_VEC4S>;
var<private> dots: array<f32, DOTS>; // the first of each key becomes the score, then the weight, of the thread's row
var<workgroup> partial_sums: array<vec4<f32>, PARTIAL_VEC4S>;
var<workgroup> partial_maxima: array<f32, PARTIAL_ROWS>;
var<workgroup> partial_exp_sums: array<f32, PARTIAL_ROWS>;

// Past the last key comes the last again, whose score is hidden; past the head of a key come zeros.
fn fetch(unit: Unit, first: u32, last: u32, lane: u32) {
    for (var b = 0u; b < PREFETCH_KEYS; b++) {
        let place = key_place(unit, min(first + b * LANE_GROUPS, last - 1u));
        for (var i = 0u; i < SLICE; i++) {
            let four = lane + i * LANES;
            let key = key_four(place, min(four, VEC4S - 1u));
            prefetched_keys[b * SLICE + i] = select(vec4<f32>(), key, VEC4S % LANES == 0u || four < VEC4S);
        }
    }
    for (var b = 0u; b < PREFETCH_KEYS; b++) {
        let key = min(first + b * LANE_GROUPS, last - 1u);
        let place = value_place(unit, key, key_place(unit, key));
        for (var i = 0u; i < SLICE; i++) {
            prefetched_values[b * SLICE + i] = value_four(place, min(lane + i * LANES, VEC4S - 1u));
        }
    }
}

// Threads `step` lanes apart add what they have of `rows` rows, and each keeps one half of these.
fn halve(rows: u32, step: u32, lane: u32) {
    let upper = (lane & step) != 0u;
    for (var b = 0u; b < PREFETCH_KEYS; b++) {
        if (rows == 1u) {
            dots[b * ROWS] += shuffled(dots[b * ROWS], step);
        }
        for (var r = 0u; r < rows / 2u; r++) {
            let low = dots[b * ROWS + r];
            let high = dots[b * ROWS + r + rows / 2u];
            dots[b * ROWS + r] = select(low, high, upper) + shuffled(select(high, low, upper), step);
        }
    }
}

// Unrolled by hand: only constant indices keep `dots` in registers.
fn sum_by_shuffles(lane: u32) {
    if (LANES > 1u) {
        halve(ROWS, LANES / 2u, lane);
    }
    if (LANES > 2u) {
        halve(max(ROWS / 2u, 1u), LANES / 4u, lane);
    }
    if (LANES > 4u) {
        halve(max(ROWS / 4u, 1u), LANES / 8u, lane);
    }
    if (LANES > 8u) {
        halve(max(ROWS / 8u, 1u), LANES / 16u, lane);
    }
}

// What a thread with the softmax of row `r` has.
fn of_row(value: f32, first: u32, r: u32) -> f32 {
    if (ROWS == 1u) {
        return value;
    }
    return from_neighbour(value, first, r * ROW_LANES);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_invocation_id) place_in_subgroup: u32,
) {
    let index = group_index(group, grid);
    if (index / params.splits >= params.units) {
        return;
    }
    let unit = unit_at(index / params.splits);
    let first_row = unit.block * ROWS;
#if CACHE == paged
    if (first_row >= unit.rows) {
        return;
    }
#endif
    let lane = thread % LANES;
    let lane_group = thread / LANES;
    let neighbours = place_in_subgroup - place_in_subgroup % LANES;
    var query: array<vec4<f32>, QUERY_VEC4S>;
    var sums: array<vec4<f32>, QUERY_VEC4S>;
    for (var r = 0u; r < ROWS; r++) {
        let place = query_place(unit, min(first_row + r, params.rows - 1u));
        for (var i = 0u; i < SLICE; i++) {
            let four = lane + i * LANES;
            let whole = query_four(place, min(four, VEC4S - 1u));
            query[r * SLICE + i] = select(vec4<f32>(), whole, VEC4S % LANES == 0u || four < VEC4S);
        }
    }
    let visible = visible_to(unit, first_row + lane / ROW_LANES);
    var running_maximum = LOWEST;
    var exp_sum = 0.0;
#if CACHE == paged
    let begin = visible_to(unit, first_row).first + index % params.splits * params.split_keys;
    let last = min(begin + params.split_keys, visible_to(unit, first_row + ROWS - 1u).last + 1u);
#if SOFTMAX == with_sinks
    if (index % params.splits == 0u && lane_group == 0u) {
        running_maximum = sink_of(unit, first_row + lane / ROW_LANES);
        exp_sum = 1.0;
    }
#endif
#else
    let begin = index % params.splits * params.split_keys;
    let last = min(begin + params.split_keys, params.context);
#endif
    for (var base = begin; base < last; base += STRIDE) {
        let first_key = base + lane_group;
        fetch(unit, first_key, last, lane);
        for (var b = 0u; b < PREFETCH_KEYS; b++) {
            for (var r = 0u; r < ROWS; r++) {
                var total = 0.0;
                for (var i = 0u; i < SLICE; i++) {
                    total = dot_onto(total, query[r * SLICE + i], prefetched_keys[b * SLICE + i]);
                }
                dots[b * ROWS + r] = total;
            }
        }
        sum_by_shuffles(lane);
        var maximum = running_maximum;
        for (var b = 0u; b < PREFETCH_KEYS; b++) {
            let key = first_key + b * LANE_GROUPS;
            let score = select(params.hidden, masked(visible, min(key, last - 1u), dots[b * ROWS]), key < last);
            dots[b * ROWS] = score;
            maximum = max(maximum, score);
        }
        let correction = exp(running_maximum - maximum);
        running_maximum = maximum;
        exp_sum *= correction;
        for (var b = 0u; b < PREFETCH_KEYS; b++) {
            dots[b * ROWS] = weight_of(dots[b * ROWS], running_maximum);
            exp_sum += dots[b * ROWS];
        }
        for (var r = 0u; r < ROWS; r++) {
            let correction_of_row = of_row(correction, neighbours, r);
            for (var i = 0u; i < SLICE; i++) {
                sums[r * SLICE + i] *= correction_of_row;
            }
            for (var b = 0u; b < PREFETCH_KEYS; b++) {
                let weight = vec4<f32>(of_row(dots[b * ROWS], neighbours, r));
                for (var i = 0u; i < SLICE; i++) {
                    sums[r * SLICE + i] = fma(weight, prefetched_values[b * SLICE + i], sums[r * SLICE + i]);
                }
            }
        }
    }

    for (var r = 0u; r < ROWS; r++) {
        for (var i = 0u; i < SLICE; i++) {
            let four = lane + i * LANES;
            if (VEC4S % LANES == 0u || four < VEC4S) {
                partial_sums[(lane_group * ROWS + r) * VEC4S + four] = sums[r * SLICE + i];
            }
        }
    }
    if (lane % ROW_LANES == 0u) {
        partial_maxima[lane_group * ROWS + lane / ROW_LANES] = running_maximum;
        partial_exp_sums[lane_group * ROWS + lane / ROW_LANES] = exp_sum;
    }
    workgroupBarrier();
    let merger = thread % COMBINE_THREADS;
    for (var first = 0u; first < ROW_VEC4S; first += COMBINED_VEC4S) {
        let item = first + thread / COMBINE_THREADS;
        let r = min(item / VEC4S, ROWS - 1u);
        let four = item % VEC4S;
        var maximum = LOWEST;
        for (var w = merger; w < LANE_GROUPS; w += COMBINE_THREADS) {
            maximum = max(maximum, partial_maxima[w * ROWS + r]);
        }
        for (var step = 1u; step < COMBINE_THREADS; step *= 2u) {
            maximum = max(maximum, shuffled(maximum, step));
        }
        var total = vec4<f32>();
        var whole = 0.0;
        for (var w = merger; w < LANE_GROUPS; w += COMBINE_THREADS) {
            let share = exp(partial_maxima[w * ROWS + r] - maximum);
            whole = fma(share, partial_exp_sums[w * ROWS + r], whole);
            total = fma(vec4<f32>(share), partial_sums[(w * ROWS + r) * VEC4S + four], total);
        }
        for (var step = 1u; step < COMBINE_THREADS; step *= 2u) {
            whole += shuffled(whole, step);
            total += shuffled_four(total, step);
        }
        if (merger == 0u && item < ROW_VEC4S) {
            if (params.splits > 1u) {
                store_split(index * ROWS + r, four, total, maximum, whole);
#if CACHE == paged
            } else if (first_row + r < unit.rows) {
#else
            } else if (first_row + r < params.rows) {
#endif
                store(out_place(unit, first_row + r), four, averaged(total, whole));
            }
        }
    }
}
