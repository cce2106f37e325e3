// Attention of few rows, bound by reading keys and values once: a workgroup takes one split of the context for up to
// ROWS rows. LANES threads score a key together; a thread has the softmax of one row; then neighbouring threads sum
// neighbouring columns of the values for all rows.
// composable: an element of the result is stored once.
// unchecked: places in the workgroup's memory follow from constants, rows and keys are held below the live ones.
// T: f32, f16
// TRow: f32, f16
// TOut: f32, f16
// TMask: f32, f16, u32
// TBias: f32, f16
// TSink: f32, f16
override WG: u32 = 256;
override ROWS: u32 = 1; // a power of two
override LANES: u32 = 4; // a power of two
override CHUNK: u32 = 128; // keys between two updates of the running maximum

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

const SLICE: u32 = (VEC4S + LANES - 1) / LANES; // vec4s of a query that a thread keeps
const QUERY_VEC4S: u32 = ROWS * SLICE;
const LANE_GROUPS: u32 = WG / LANES;
const KEY_SHARES: u32 = max(1u, WG / VEC4S); // of a chunk's keys, summed side by side
const COLUMNS: u32 = (VEC4S + WG - 1) / WG; // vec4s of the values that a thread sums
const SUMS: u32 = ROWS * COLUMNS;
const PASS_ROWS: u32 = min(ROWS, max(1u, 256u / WG)); // rows whose sums fit the workgroup's memory at once
const MANY_THREADS: bool = WG >= 64; // threads that wait for memory rather than for arithmetic
const PREFETCH_KEYS: u32 = select(1u, max(1u, 8u / SLICE), MANY_THREADS); // keys that a thread prefetches
const PREFETCH_VEC4S: u32 = PREFETCH_KEYS * SLICE;
const PREFETCH_VALUES: u32 = select(1u, 8u, MANY_THREADS); // values that it prefetches
const PARTIAL_COUNT: u32 = min(WG, 32u); // partial results, before every thread reads all

var<workgroup> score_parts: array<f32, CHUNK * ROWS * LANES>; // partial dots; the first becomes the weight
var<workgroup> of_threads: array<f32, WG>;
var<workgroup> corrections: array<f32, ROWS>;
var<private> prefetched_keys: array<vec4<f32>, PREFETCH_VEC4S>;
var<private> prefetched_values: array<vec4<f32>, PREFETCH_VALUES>;
var<workgroup> partial_sums: array<vec4<f32>, WG * PASS_ROWS>;

// Folded once, then read by every thread rather than halved step by step: a barrier costs more than these few reads.
fn fold_maximum(thread: u32, found: f32) {
    of_threads[thread] = found;
    workgroupBarrier();
    if (WG > PARTIAL_COUNT) {
        if (thread < PARTIAL_COUNT) {
            var maximum = found;
            for (var i = thread + PARTIAL_COUNT; i < WG; i += PARTIAL_COUNT) {
                maximum = max(maximum, of_threads[i]);
            }
            of_threads[thread] = maximum;
        }
        workgroupBarrier();
    }
}

fn maximum_of(row: u32) -> f32 {
    var maximum = LOWEST;
    for (var i = row; i < PARTIAL_COUNT; i += ROWS) {
        maximum = max(maximum, of_threads[i]);
    }
    return maximum;
}

fn fold_total(thread: u32, found: f32) {
    of_threads[thread] = found;
    workgroupBarrier();
    if (WG > PARTIAL_COUNT) {
        if (thread < PARTIAL_COUNT) {
            var total = found;
            for (var i = thread + PARTIAL_COUNT; i < WG; i += PARTIAL_COUNT) {
                total += of_threads[i];
            }
            of_threads[thread] = total;
        }
        workgroupBarrier();
    }
}

fn total_of(row: u32) -> f32 {
    var total = 0.0;
    for (var i = row; i < PARTIAL_COUNT; i += ROWS) {
        total += of_threads[i];
    }
    return total;
}

// Past the end of the chunk comes its last key, past the head its last four: neither is looked at.
fn fetch_keys(unit: Unit, chunk: u32, first: u32, count: u32, first_four: u32) {
    for (var t = 0u; t < PREFETCH_KEYS; t++) {
        let place = key_place(unit, chunk + min(first + t * LANE_GROUPS, count - 1u));
        for (var i = 0u; i < SLICE; i++) {
            prefetched_keys[t * SLICE + i] = key_four(place, min(first_four + i * LANES, VEC4S - 1u));
        }
    }
}

fn fetch_values(unit: Unit, chunk: u32, first: u32, count: u32, four: u32) {
    for (var u = 0u; u < PREFETCH_VALUES; u++) {
        let key = chunk + min(first + u * KEY_SHARES, count - 1u);
        prefetched_values[u] = value_four(value_place(unit, key, key_place(unit, key)), four);
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = group_index(group, grid);
    let split = index % params.splits;
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
    var query: array<vec4<f32>, QUERY_VEC4S>;
    for (var r = 0u; r < ROWS; r++) {
        let place = query_place(unit, min(first_row + r, params.rows - 1u));
        for (var i = 0u; i < SLICE; i++) {
            let four = thread % LANES + i * LANES;
            if (four < VEC4S) {
                query[r * SLICE + i] = query_four(place, four);
            }
        }
    }
    // Threads sum neighbouring columns of a part of the keys, or all keys where there are more columns than threads.
    let first_column = select(thread % VEC4S, min(thread, VEC4S - 1u), COLUMNS > 1u);
    let first_of_share = select(select(CHUNK, thread / VEC4S, thread < KEY_SHARES * VEC4S), 0u, COLUMNS > 1u);
    // Every thread has the softmax of one row only.
    let own_row = thread % ROWS;
    let visible = visible_to(unit, first_row + own_row);
    var running_maximum = LOWEST;
    var exp_sum = 0.0;
    var sums: array<vec4<f32>, SUMS>;
#if CACHE == paged
    let first_key = visible_to(unit, first_row).first + split * params.split_keys;
    let last_key = min(first_key + params.split_keys, visible_to(unit, first_row + ROWS - 1u).last + 1u);
#if SOFTMAX == with_sinks
    if (split == 0u) {
        running_maximum = sink_of(unit, first_row + own_row);
        exp_sum = select(0.0, 1.0, thread < ROWS); // once, as threads add theirs up
    }
#endif
#else
    let first_key = split * params.split_keys;
    let last_key = min(first_key + params.split_keys, params.context);
#endif
    for (var chunk = first_key; chunk < last_key; chunk += CHUNK) {
        let count = min(CHUNK, last_key - chunk);
        // Values are prefetched before the scores are known.
        if (MANY_THREADS) {
            fetch_values(unit, chunk, first_of_share, count, first_column);
        }
        for (var first = thread / LANES; first < count; first += LANE_GROUPS * PREFETCH_KEYS) {
            if (MANY_THREADS) {
                fetch_keys(unit, chunk, first, count, thread % LANES);
            }
            for (var t = 0u; t < PREFETCH_KEYS; t++) {
                let j = first + t * LANE_GROUPS;
                let place = key_place(unit, chunk + j);
                var dots = array<f32, ROWS>();
                for (var i = 0u; i < SLICE; i++) {
                    let four = thread % LANES + i * LANES;
                    if (four < VEC4S) {
                        var key: vec4<f32>;
                        if (MANY_THREADS) {
                            key = prefetched_keys[t * SLICE + i];
                        } else {
                            key = key_four(place, four);
                        }
                        for (var r = 0u; r < ROWS; r++) {
                            dots[r] = dot_onto(dots[r], query[r * SLICE + i], key);
                        }
                    }
                }
                if (PREFETCH_KEYS == 1u || j < count) {
                    for (var r = 0u; r < ROWS; r++) {
                        score_parts[(j * ROWS + r) * LANES + thread % LANES] = dots[r];
                    }
                }
            }
        }
        workgroupBarrier();
        var maximum = running_maximum;
        for (var i = thread; i < count * ROWS; i += WG) {
            var score = 0.0;
            for (var l = 0u; l < LANES; l++) {
                score += score_parts[i * LANES + l];
            }
            score = masked(visible, chunk + i / ROWS, score);
            score_parts[i * LANES] = score;
            maximum = max(maximum, score);
        }
        fold_maximum(thread, maximum);
        maximum = maximum_of(own_row);
        let correction = exp(running_maximum - maximum);
        running_maximum = maximum;
        exp_sum *= correction;
        for (var i = thread; i < count * ROWS; i += WG) {
            let weight = weight_of(score_parts[i * LANES], running_maximum);
            score_parts[i * LANES] = weight;
            exp_sum += weight;
        }
        if (thread < ROWS) {
            corrections[thread] = correction;
        }
        workgroupBarrier();
        for (var c = 0u; c < COLUMNS; c++) {
            for (var r = 0u; r < ROWS; r++) {
                sums[c * ROWS + r] *= corrections[r];
            }
            let four = select(first_column, min(thread + c * WG, VEC4S - 1u), COLUMNS > 1u);
            for (var first = first_of_share; first < count; first += KEY_SHARES * PREFETCH_VALUES) {
                if (MANY_THREADS && (c > 0u || first != first_of_share)) {
                    fetch_values(unit, chunk, first, count, four);
                }
                for (var u = 0u; u < PREFETCH_VALUES; u++) {
                    let j = first + u * KEY_SHARES;
                    if (PREFETCH_VALUES == 1u || j < count) {
                        var value: vec4<f32>;
                        if (MANY_THREADS) {
                            value = prefetched_values[u];
                        } else {
                            let key = chunk + j;
                            value = value_four(value_place(unit, key, key_place(unit, key)), four);
                        }
                        for (var r = 0u; r < ROWS; r++) {
                            let i = c * ROWS + r;
                            sums[i] = fma(vec4<f32>(score_parts[(j * ROWS + r) * LANES]), value, sums[i]);
                        }
                    }
                }
            }
        }
        workgroupBarrier();
    }

    fold_total(thread, exp_sum);
    for (var c = 0u; c < COLUMNS; c++) {
        let wide = min(VEC4S - c * WG, WG);
        for (var first = 0u; first < ROWS; first += PASS_ROWS) {
            if (c + first > 0u) {
                workgroupBarrier();
            }
            for (var r = 0u; r < PASS_ROWS; r++) {
                partial_sums[r * WG + thread] = sums[c * ROWS + first + r];
            }
            workgroupBarrier();
            for (var i = thread; i < wide * PASS_ROWS; i += WG) {
                var total = vec4<f32>();
                for (var p = 0u; p < KEY_SHARES; p++) {
                    total += partial_sums[i / wide * WG + p * VEC4S + i % wide];
                }
                let r = first + i / wide;
                let four = c * WG + i % wide;
                if (params.splits > 1u) {
                    let start = (index * ROWS + r) * (HEAD_SIZE + 2u);
                    for (var e = 0u; e < width_of(four); e++) {
                        split_results[start + four * 4u + e] = total[e];
                    }
#if CACHE == paged
                } else if (first_row + r < unit.rows) {
#else
                } else if (first_row + r < params.rows) {
#endif
                    let whole = total_of(r);
                    store(out_place(unit, first_row + r), four, averaged(total, whole));
                }
            }
        }
    }
    if (params.splits > 1u && thread < ROWS) {
        split_results[(index * ROWS + thread) * (HEAD_SIZE + 2u) + HEAD_SIZE] = running_maximum;
        split_results[(index * ROWS + thread) * (HEAD_SIZE + 2u) + HEAD_SIZE + 1u] = total_of(thread);
    }
}
