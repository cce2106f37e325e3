// Attention of few rows by subgroup shuffles. LANES threads, a walker, go through a split of the context on their own:
// they load a key and its value together, and each has the softmax of one row. Walkers are merged once, at the end of
// the split.
// unchecked: places in the workgroup's memory follow from constants, rows and keys are held below the live ones.
// T: f32, f16
// TRow: f32, f16
// TMask: f32, f16, u32
override WG: u32 = 128;
override ROWS: u32 = 1; // a power of two, at most LANES
override LANES: u32 = 16; // a power of two, at most 16 and a subgroup
override AHEAD: u32 = 4; // keys that a thread prefetches
override MERGERS: u32 = 1; // neighbours that merge a four of a row, a power of two, at most LANES and WALKERS

@group(0) @binding(0) var<storage, read_write> out: array<TRow>;
@group(0) @binding(1) var<storage, read_write> split_results: array<f32>; // see attention/store_split.wgsl
@group(0) @binding(2) var<storage, read> queries: array<TRow>;
@group(0) @binding(3) var<storage, read> keys: array<V>;
@group(0) @binding(4) var<storage, read> values: array<V>;
@group(0) @binding(5) var<storage, read> mask: array<TMask>;
@group(0) @binding(6) var<uniform> params: Params;

#include attention/params
#include attention/operands
#include attention/store_split
#include attention/shuffles

const SLICE: u32 = (FOURS + LANES - 1) / LANES; // fours of a query that a thread keeps
const KEPT: u32 = ROWS * SLICE;
const ALIKE: u32 = LANES / ROWS; // lanes with the softmax of the same row
const WALKERS: u32 = WG / LANES;
const STRIDE: u32 = WALKERS * AHEAD;
const FETCHED: u32 = AHEAD * SLICE;
const DOTS: u32 = AHEAD * ROWS;
const FOUND: u32 = WALKERS * ROWS;
const ITEMS: u32 = ROWS * FOURS;
const FOUND_FOURS: u32 = WALKERS * ITEMS;
const AT_ONCE: u32 = WG / MERGERS; // items that are merged side by side

var<private> prefetched_keys: array<vec4<f32>, FETCHED>;
var<private> prefetched_values: array<vec4<f32>, FETCHED>;
var<private> dots: array<f32, DOTS>; // the first of each key becomes the score, then the weight, of the thread's row
var<workgroup> found_sums: array<vec4<f32>, FOUND_FOURS>;
var<workgroup> found_maxima: array<f32, FOUND>;
var<workgroup> found_exp_sums: array<f32, FOUND>;

// Past the last key comes the last again, whose score is hidden; past the head of a key come zeros.
fn fetch(unit: Unit, first: u32, last: u32, lane: u32) {
    for (var b = 0u; b < AHEAD; b++) {
        let place = key_place(unit, min(first + b * WALKERS, last - 1u));
        for (var i = 0u; i < SLICE; i++) {
            let four = lane + i * LANES;
            let key = key_four(place, min(four, FOURS - 1u));
            prefetched_keys[b * SLICE + i] = select(vec4<f32>(), key, FOURS % LANES == 0u || four < FOURS);
        }
    }
    for (var b = 0u; b < AHEAD; b++) {
        let place = key_place(unit, min(first + b * WALKERS, last - 1u));
        for (var i = 0u; i < SLICE; i++) {
            prefetched_values[b * SLICE + i] = value_four(place, min(lane + i * LANES, FOURS - 1u));
        }
    }
}

// Threads `step` lanes apart add what they have of `rows` rows, and each keeps one half of these.
fn halve(rows: u32, step: u32, lane: u32) {
    let upper = (lane & step) != 0u;
    for (var b = 0u; b < AHEAD; b++) {
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
    return from_neighbour(value, first, r * ALIKE);
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
    let lane = thread % LANES;
    let walker = thread / LANES;
    let neighbours = place_in_subgroup - place_in_subgroup % LANES;
    var query: array<vec4<f32>, KEPT>;
    var sums: array<vec4<f32>, KEPT>;
    for (var r = 0u; r < ROWS; r++) {
        let place = query_place(unit, min(first_row + r, params.rows - 1u));
        for (var i = 0u; i < SLICE; i++) {
            let four = lane + i * LANES;
            let whole = query_four(place, min(four, FOURS - 1u));
            query[r * SLICE + i] = select(vec4<f32>(), whole, FOURS % LANES == 0u || four < FOURS);
        }
    }
    let visible = visible_to(unit, first_row + lane / ALIKE);
    var running_maximum = LOWEST;
    var exp_sum = 0.0;
    let begin = index % params.splits * params.split_keys;
    let last = min(begin + params.split_keys, params.context);
    for (var base = begin; base < last; base += STRIDE) {
        let first_key = base + walker;
        fetch(unit, first_key, last, lane);
        for (var b = 0u; b < AHEAD; b++) {
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
        for (var b = 0u; b < AHEAD; b++) {
            let key = first_key + b * WALKERS;
            let score = select(params.hidden, masked(visible, min(key, last - 1u), dots[b * ROWS]), key < last);
            dots[b * ROWS] = score;
            maximum = max(maximum, score);
        }
        let correction = exp(running_maximum - maximum);
        running_maximum = maximum;
        exp_sum *= correction;
        for (var b = 0u; b < AHEAD; b++) {
            dots[b * ROWS] = weight_of(dots[b * ROWS], running_maximum);
            exp_sum += dots[b * ROWS];
        }
        for (var r = 0u; r < ROWS; r++) {
            let correction_of_row = of_row(correction, neighbours, r);
            for (var i = 0u; i < SLICE; i++) {
                sums[r * SLICE + i] *= correction_of_row;
            }
            for (var b = 0u; b < AHEAD; b++) {
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
            if (FOURS % LANES == 0u || four < FOURS) {
                found_sums[(walker * ROWS + r) * FOURS + four] = sums[r * SLICE + i];
            }
        }
    }
    if (lane % ALIKE == 0u) {
        found_maxima[walker * ROWS + lane / ALIKE] = running_maximum;
        found_exp_sums[walker * ROWS + lane / ALIKE] = exp_sum;
    }
    workgroupBarrier();
    let merger = thread % MERGERS;
    for (var first = 0u; first < ITEMS; first += AT_ONCE) {
        let item = first + thread / MERGERS;
        let r = min(item / FOURS, ROWS - 1u);
        let four = item % FOURS;
        var maximum = LOWEST;
        for (var w = merger; w < WALKERS; w += MERGERS) {
            maximum = max(maximum, found_maxima[w * ROWS + r]);
        }
        for (var step = 1u; step < MERGERS; step *= 2u) {
            maximum = max(maximum, shuffled(maximum, step));
        }
        var total = vec4<f32>();
        var whole = 0.0;
        for (var w = merger; w < WALKERS; w += MERGERS) {
            let share = exp(found_maxima[w * ROWS + r] - maximum);
            whole = fma(share, found_exp_sums[w * ROWS + r], whole);
            total = fma(vec4<f32>(share), found_sums[(w * ROWS + r) * FOURS + four], total);
        }
        for (var step = 1u; step < MERGERS; step *= 2u) {
            whole += shuffled(whole, step);
            total += shuffled_four(total, step);
        }
        if (merger == 0u && item < ITEMS) {
            if (params.splits > 1u) {
                store_split(index * ROWS + r, four, total, maximum, whole);
            } else if (first_row + r < params.rows) {
                store(query_place(unit, first_row + r), four, total / select(whole, 1.0, whole == 0.0));
            }
        }
    }
}
