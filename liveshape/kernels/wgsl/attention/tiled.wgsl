// Attention of many rows: a workgroup takes TILE_ROWS of them through a split of the context, KEYS at a time, and keeps
// only the running maximum, sum of exponentials and sums of each (online softmax). A thread has THREAD_ROWS rows: first
// against some keys, then against some columns. The next tile is prefetched to registers while this one is multiplied.
// composable: an element of the result is stored once.
// unchecked: places in the workgroup's memory follow from constants, rows and keys are held below the live ones.
// T: f32, f16
// TRow: f32, f16
// TOut: f32, f16
// TMask: f32, f16, u32
// TBias: f32, f16
// TSink: f32, f16
override WG: u32 = 128;
override TILE_ROWS: u32 = 64;
override THREAD_ROWS: u32 = 8; // a multiple of four
override KEYS: u32 = 32;
override TILE_DEPTH: u32 = 4; // vec4s of the head at a time, a power of two; all at once keep the queries in place
override VALUE_KEYS: u32 = 8; // whose values lie where TILE_DEPTH vec4s of all keys did

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

const ROW_VEC4S: u32 = TILE_ROWS / 4;
const THREAD_ROW_VEC4S: u32 = THREAD_ROWS / 4;
const ROW_THREADS: u32 = TILE_ROWS / THREAD_ROWS;
const KEY_THREADS: u32 = WG / ROW_THREADS;
const THREAD_KEYS: u32 = KEYS / KEY_THREADS;
const SCORES: u32 = THREAD_KEYS * THREAD_ROW_VEC4S;
const COLUMNS: u32 = (VEC4S + KEY_THREADS - 1) / KEY_THREADS; // vec4s of a thread
const SUMS: u32 = COLUMNS * THREAD_ROWS;
const KEY_VEC4S: u32 = KEYS * TILE_DEPTH;
const VALUE_VEC4S: u32 = VALUE_KEYS * VEC4S;
const STAGE_VEC4S: u32 = max(KEY_VEC4S, VALUE_VEC4S);
const KEY_LOADS: u32 = (KEY_VEC4S + WG - 1) / WG;
const VALUE_LOADS: u32 = (VALUE_VEC4S + WG - 1) / WG;
const PREFETCH_VEC4S: u32 = max(KEY_LOADS, VALUE_LOADS);
const MANY_THREADS: bool = WG >= 64; // fewer threads read values where they lie rather than wait for each other
const VALUE_CHUNK: u32 = select(KEYS, VALUE_KEYS, MANY_THREADS); // keys whose values are at hand
const VALUE_UNROLL: u32 = select(1u, min(VALUE_KEYS, 4u), MANY_THREADS);

alias ThreadRows = array<vec4<f32>, THREAD_ROW_VEC4S>; // a number for each row of a thread

var<workgroup> tile_queries: array<vec4<f32>, TILE_ROWS * TILE_DEPTH>;
var<workgroup> stage: array<vec4<f32>, STAGE_VEC4S>; // keys, then their values
var<workgroup> weights: array<vec4<f32>, KEYS * ROW_VEC4S>; // of a key for four rows
var<private> prefetched: array<vec4<f32>, PREFETCH_VEC4S>;

// Swizzled: each line is rotated by one more than the one before, so that neighbours lie in different banks.
fn line_place(line: u32, four: u32) -> u32 {
    return line * TILE_DEPTH + select(four, (four + line) % TILE_DEPTH, MANY_THREADS);
}

fn weight_place(key: u32, row_four: u32) -> u32 {
    return key * ROW_VEC4S + select(row_four, (row_four + key) % ROW_VEC4S, MANY_THREADS);
}

#include attention/row_reduction

fn load_queries(thread: u32, unit: Unit, first_four: u32) {
    for (var i = thread; i < TILE_ROWS * TILE_DEPTH; i += WG) {
        let row = min(unit.block * TILE_ROWS + i / TILE_DEPTH, params.rows - 1u);
        let four = min(first_four + i % TILE_DEPTH, VEC4S - 1u);
        tile_queries[line_place(i / TILE_DEPTH, i % TILE_DEPTH)] = query_four(query_place(unit, row), four);
    }
}

// Past the last key and past the head comes the last there is: its score is hidden, its vec4s are not looked at.
fn key_at(place: u32, unit: Unit, first_key: u32, last_key: u32, first_four: u32) -> vec4<f32> {
    let key = min(first_key + place / TILE_DEPTH, last_key - 1u);
    return key_four(key_place(unit, key), min(first_four + place % TILE_DEPTH, VEC4S - 1u));
}

fn fetch_keys(thread: u32, unit: Unit, first_key: u32, last_key: u32, first_four: u32) {
    for (var i = 0u; i < KEY_LOADS; i++) {
        prefetched[i] = key_at(thread + i * WG, unit, first_key, last_key, first_four);
    }
}

fn stage_keys(thread: u32, unit: Unit, first_key: u32, last_key: u32, first_four: u32) {
    for (var i = 0u; i < KEY_LOADS; i++) {
        let place = thread + i * WG;
        if (KEY_VEC4S % WG == 0u || place < KEY_VEC4S) {
            if (!MANY_THREADS) {
                prefetched[i] = key_at(place, unit, first_key, last_key, first_four);
            }
            stage[line_place(place / TILE_DEPTH, place % TILE_DEPTH)] = prefetched[i];
        }
    }
}

fn fetch_values(thread: u32, unit: Unit, first_key: u32, last_key: u32) {
    for (var i = 0u; i < VALUE_LOADS; i++) {
        let place = thread + i * WG;
        let key = first_key + place / VEC4S;
        let real = min(key, last_key - 1u);
        let value = value_four(value_place(unit, real, key_place(unit, real)), place % VEC4S);
        prefetched[i] = select(vec4<f32>(), value, key < last_key);
    }
}

fn stage_values(thread: u32) {
    for (var i = 0u; i < VALUE_LOADS; i++) {
        let place = thread + i * WG;
        if (VALUE_VEC4S % WG == 0u || place < VALUE_VEC4S) {
            stage[place] = prefetched[i];
        }
    }
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
    let row_thread = thread / KEY_THREADS;
    let key_thread = thread % KEY_THREADS;
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
    var visibles: array<Visible, THREAD_ROWS>;
    for (var r = 0u; r < THREAD_ROWS; r++) {
        visibles[r] = visible_to(unit, first_row + (row_thread + r / 4u * ROW_THREADS) * 4u + r % 4u);
    }
    var running_maximum: ThreadRows;
    for (var h = 0u; h < THREAD_ROW_VEC4S; h++) {
        running_maximum[h] = vec4<f32>(LOWEST);
    }
    var exp_sum: ThreadRows; // of this thread's keys
#if SOFTMAX == with_sinks
    if (work % params.splits == 0u) {
        for (var r = 0u; r < THREAD_ROWS; r++) {
            let row = first_row + (row_thread + r / 4u * ROW_THREADS) * 4u + r % 4u;
            running_maximum[r / 4u][r % 4u] = sink_of(unit, row);
            exp_sum[r / 4u][r % 4u] = select(0.0, 1.0, key_thread == 0u); // once, as threads add theirs up
        }
    }
#endif
    var sums: array<vec4<f32>, SUMS>; // the rows of one column four, then of the next
    if (MANY_THREADS && begin < last_key) {
        fetch_keys(thread, unit, begin, last_key, 0u);
    }
    for (var first_key = begin; first_key < last_key; first_key += KEYS) {
        var scores = array<vec4<f32>, SCORES>();
        for (var first_four = 0u; first_four < VEC4S; first_four += TILE_DEPTH) {
            workgroupBarrier();
            stage_keys(thread, unit, first_key, last_key, first_four);
            if (VEC4S > TILE_DEPTH || first_key == begin) {
                load_queries(thread, unit, first_four);
            }
            workgroupBarrier();
            if (MANY_THREADS && first_four + TILE_DEPTH < VEC4S) {
                fetch_keys(thread, unit, first_key, last_key, first_four + TILE_DEPTH);
            } else if (MANY_THREADS) {
                fetch_values(thread, unit, first_key, last_key);
            }
            for (var four = 0u; four < select(min(TILE_DEPTH, VEC4S - first_four), TILE_DEPTH, VEC4S % TILE_DEPTH == 0u); four++) {
                var blocks: array<mat4x4<f32>, THREAD_ROW_VEC4S>; // an element of four queries in a column
                for (var h = 0u; h < THREAD_ROW_VEC4S; h++) {
                    let row = (row_thread + h * ROW_THREADS) * 4u;
                    blocks[h] = transpose(mat4x4<f32>(
                        tile_queries[line_place(row, four)],
                        tile_queries[line_place(row + 1u, four)],
                        tile_queries[line_place(row + 2u, four)],
                        tile_queries[line_place(row + 3u, four)],
                    ));
                }
                for (var j = 0u; j < THREAD_KEYS; j++) {
                    let key = stage[line_place(key_thread + j * KEY_THREADS, four)];
                    for (var h = 0u; h < THREAD_ROW_VEC4S; h++) {
                        var score = scores[j * THREAD_ROW_VEC4S + h];
                        score = fma(blocks[h][0], vec4<f32>(key.x), score);
                        score = fma(blocks[h][1], vec4<f32>(key.y), score);
                        score = fma(blocks[h][2], vec4<f32>(key.z), score);
                        scores[j * THREAD_ROW_VEC4S + h] = fma(blocks[h][3], vec4<f32>(key.w), score);
                    }
                }
            }
        }
        // Where every row sees every key there is nothing to hide.
#if CACHE == paged
        if (SOFTCAP || first_key < of_last_row.first || first_key + KEYS > seen_by_all) {
#else
        if (CHANGES_SCORES || first_key + KEYS > seen_by_all) {
#endif
            for (var j = 0u; j < THREAD_KEYS; j++) {
                let key = first_key + key_thread + j * KEY_THREADS;
                // A key past the end takes the mask of the last one, and is hidden.
                let real = min(key, last_key - 1u);
                for (var r = 0u; r < THREAD_ROWS; r++) {
                    let score = masked(visibles[r], real, scores[j * THREAD_ROW_VEC4S + r / 4u][r % 4u]);
                    scores[j * THREAD_ROW_VEC4S + r / 4u][r % 4u] = select(params.hidden, score, key < last_key);
                }
            }
        }
        var maximum = running_maximum;
        for (var h = 0u; h < THREAD_ROW_VEC4S; h++) {
            for (var j = 0u; j < THREAD_KEYS; j++) {
                maximum[h] = max(maximum[h], scores[j * THREAD_ROW_VEC4S + h]);
            }
        }
        maximum = row_maximum(row_thread, key_thread, maximum);
        for (var h = 0u; h < THREAD_ROW_VEC4S; h++) {
            let correction = exp(running_maximum[h] - maximum[h]);
            running_maximum[h] = maximum[h];
            exp_sum[h] *= correction;
            for (var j = 0u; j < THREAD_KEYS; j++) {
                let score = scores[j * THREAD_ROW_VEC4S + h];
                let weight = select(exp(score - running_maximum[h]), vec4<f32>(), score < vec4<f32>(LOWEST));
                exp_sum[h] += weight;
                weights[weight_place(key_thread + j * KEY_THREADS, row_thread + h * ROW_THREADS)] = weight;
            }
            for (var c = 0u; c < COLUMNS; c++) {
                for (var r = 0u; r < 4u; r++) {
                    sums[c * THREAD_ROWS + h * 4u + r] *= correction[r];
                }
            }
        }
        let count = min(KEYS, last_key - first_key);
        for (var first = 0u; first < count; first += VALUE_CHUNK) {
            if (first > 0u) {
                workgroupBarrier();
            }
            if (MANY_THREADS) {
                stage_values(thread);
            }
            workgroupBarrier();
            if (MANY_THREADS && first + VALUE_CHUNK < count) {
                fetch_values(thread, unit, first_key + first + VALUE_CHUNK, last_key);
            } else if (MANY_THREADS && first_key + KEYS < last_key) {
                fetch_keys(thread, unit, first_key + KEYS, last_key, 0u);
            }
            // Keys past the end have no weight and no value, so a step is always whole.
            for (var j = 0u; j < min(VALUE_CHUNK, count - first); j += VALUE_UNROLL) {
                for (var s = 0u; s < VALUE_UNROLL; s++) {
                    var weight: ThreadRows;
                    for (var h = 0u; h < THREAD_ROW_VEC4S; h++) {
                        weight[h] = weights[weight_place(first + j + s, row_thread + h * ROW_THREADS)];
                    }
                    let key = first_key + j + s;
                    let place = value_place(unit, key, key_place(unit, key));
                    for (var c = 0u; c < COLUMNS; c++) {
                        var value: vec4<f32>;
                        if (MANY_THREADS) {
                            value = stage[(j + s) * VEC4S + column_four(key_thread, c)];
                        } else {
                            value = value_four(place, column_four(key_thread, c));
                        }
                        for (var r = 0u; r < THREAD_ROWS; r++) {
                            let i = c * THREAD_ROWS + r;
                            sums[i] = fma(vec4<f32>(weight[r / 4u][r % 4u]), value, sums[i]);
                        }
                    }
                }
            }
        }
    }
    exp_sum = row_sum(row_thread, key_thread, exp_sum);
    for (var h = 0u; h < THREAD_ROW_VEC4S; h++) {
        for (var r = 0u; r < 4u; r++) {
            let tile_row = (row_thread + h * ROW_THREADS) * 4u + r;
            let whole = exp_sum[h][r];
            for (var c = 0u; c < COLUMNS; c++) {
                let four = key_thread + c * KEY_THREADS;
                let sum = sums[c * THREAD_ROWS + h * 4u + r];
#if CACHE == paged
                if (four < VEC4S && first_row + tile_row < unit.rows) {
#else
                if (four < VEC4S && first_row + tile_row < params.rows) {
#endif
                    if (params.splits > 1u) {
                        store_split(work * TILE_ROWS + tile_row, four, sum, running_maximum[h][r], whole);
                    } else {
                        store(out_place(unit, first_row + tile_row), four, averaged(sum, whole));
                    }
                }
            }
        }
    }
}

// Threads past the head sum its last column once more, which nobody looks at.
fn column_four(key_thread: u32, c: u32) -> u32 {
    return select(min(key_thread + c * KEY_THREADS, VEC4S - 1u), key_thread + c * KEY_THREADS, VEC4S % KEY_THREADS == 0u);
}
