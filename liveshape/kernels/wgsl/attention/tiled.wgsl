// Attention of many rows: a workgroup takes TILE_ROWS of them through a split of the context, KEYS at a time, and keeps
// only the running maximum, sum of exponentials and sums of each (online softmax). A thread holds HELD rows: first
// against some keys, then against some columns. The next tile is prefetched to registers while this one is multiplied.
// unchecked: places in the workgroup's memory follow from constants, rows and keys are held below the live ones.
// T: f32, f16
// TRow: f32, f16
// TMask: f32, f16, u32
override WG: u32 = 128;
override TILE_ROWS: u32 = 64;
override HELD: u32 = 8; // a multiple of four
override KEYS: u32 = 32;
override DEPTH: u32 = 4; // fours of the head at a time, a power of two; all of them at once keep the queries in place
override VALUE_KEYS: u32 = 8; // whose values lie where DEPTH fours of all keys did

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

const ROW_FOURS: u32 = TILE_ROWS / 4;
const HELD_FOURS: u32 = HELD / 4;
const ROW_THREADS: u32 = TILE_ROWS / HELD;
const KEY_THREADS: u32 = WG / ROW_THREADS;
const THREAD_KEYS: u32 = KEYS / KEY_THREADS;
const SCORES: u32 = THREAD_KEYS * HELD_FOURS;
const COLUMNS: u32 = (FOURS + KEY_THREADS - 1) / KEY_THREADS; // fours of a thread
const SUMS: u32 = COLUMNS * HELD;
const KEY_PLACES: u32 = KEYS * DEPTH;
const VALUE_PLACES: u32 = VALUE_KEYS * FOURS;
const STAGE: u32 = max(KEY_PLACES, VALUE_PLACES);
const KEY_LOADS: u32 = (KEY_PLACES + WG - 1) / WG;
const VALUE_LOADS: u32 = (VALUE_PLACES + WG - 1) / WG;
const AHEAD: u32 = max(KEY_LOADS, VALUE_LOADS);
const MANY: bool = WG >= 64; // fewer threads read values where they lie rather than wait for each other
const PIECE: u32 = select(KEYS, VALUE_KEYS, MANY); // keys whose values are at hand
const STEP: u32 = select(1u, min(VALUE_KEYS, 4u), MANY);

alias Held = array<vec4<f32>, HELD_FOURS>; // a number for each row of a thread

var<workgroup> tile_queries: array<vec4<f32>, TILE_ROWS * DEPTH>;
var<workgroup> stage: array<vec4<f32>, STAGE>; // keys, then their values
var<workgroup> weights: array<vec4<f32>, KEYS * ROW_FOURS>; // of a key for four rows
var<private> prefetched: array<vec4<f32>, AHEAD>;

// Swizzled: each line is rotated by one more than the one before, so that neighbours lie in different banks.
fn line_place(line: u32, four: u32) -> u32 {
    return line * DEPTH + select(four, (four + line) % DEPTH, MANY);
}

fn weight_place(key: u32, row_four: u32) -> u32 {
    return key * ROW_FOURS + select(row_four, (row_four + key) % ROW_FOURS, MANY);
}

#include attention/row_reduction

fn load_queries(thread: u32, unit: Unit, first_four: u32) {
    for (var i = thread; i < TILE_ROWS * DEPTH; i += WG) {
        let row = min(unit.block * TILE_ROWS + i / DEPTH, params.rows - 1u);
        let four = min(first_four + i % DEPTH, FOURS - 1u);
        tile_queries[line_place(i / DEPTH, i % DEPTH)] = query_four(query_place(unit, row), four);
    }
}

// Past the last key and past the head comes the last there is: its score is hidden, its fours are not looked at.
fn key_at(place: u32, unit: Unit, first_key: u32, last_key: u32, first_four: u32) -> vec4<f32> {
    let key = min(first_key + place / DEPTH, last_key - 1u);
    return key_four(key_place(unit, key), min(first_four + place % DEPTH, FOURS - 1u));
}

fn fetch_keys(thread: u32, unit: Unit, first_key: u32, last_key: u32, first_four: u32) {
    for (var i = 0u; i < KEY_LOADS; i++) {
        prefetched[i] = key_at(thread + i * WG, unit, first_key, last_key, first_four);
    }
}

fn stage_keys(thread: u32, unit: Unit, first_key: u32, last_key: u32, first_four: u32) {
    for (var i = 0u; i < KEY_LOADS; i++) {
        let place = thread + i * WG;
        if (KEY_PLACES % WG == 0u || place < KEY_PLACES) {
            if (!MANY) {
                prefetched[i] = key_at(place, unit, first_key, last_key, first_four);
            }
            stage[line_place(place / DEPTH, place % DEPTH)] = prefetched[i];
        }
    }
}

fn fetch_values(thread: u32, unit: Unit, first_key: u32, last_key: u32) {
    for (var i = 0u; i < VALUE_LOADS; i++) {
        let place = thread + i * WG;
        let key = first_key + place / FOURS;
        let value = value_four(key_place(unit, min(key, last_key - 1u)), place % FOURS);
        prefetched[i] = select(vec4<f32>(), value, key < last_key);
    }
}

fn stage_values(thread: u32) {
    for (var i = 0u; i < VALUE_LOADS; i++) {
        let place = thread + i * WG;
        if (VALUE_PLACES % WG == 0u || place < VALUE_PLACES) {
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
    let begin = work % params.splits * params.split_keys;
    var last_key = min(begin + params.split_keys, params.context);
    var seen_by_all = last_key;
    if (params.causal != 0u) {
        let last_row = min(first_row + TILE_ROWS, params.rows) - 1u;
        last_key = min(last_key, params.position + last_row / params.group + 1u);
        seen_by_all = min(last_key, params.position + first_row / params.group + 1u);
    }
    var visibles: array<Visible, HELD>;
    for (var r = 0u; r < HELD; r++) {
        visibles[r] = visible_to(unit, first_row + (row_thread + r / 4u * ROW_THREADS) * 4u + r % 4u);
    }
    var running_maximum: Held;
    for (var h = 0u; h < HELD_FOURS; h++) {
        running_maximum[h] = vec4<f32>(LOWEST);
    }
    var exp_sum: Held; // of this thread's keys
    var sums: array<vec4<f32>, SUMS>; // the rows of one column four, then of the next
    if (MANY && begin < last_key) {
        fetch_keys(thread, unit, begin, last_key, 0u);
    }
    for (var first_key = begin; first_key < last_key; first_key += KEYS) {
        var scores = array<vec4<f32>, SCORES>();
        for (var first_four = 0u; first_four < FOURS; first_four += DEPTH) {
            workgroupBarrier();
            stage_keys(thread, unit, first_key, last_key, first_four);
            if (FOURS > DEPTH || first_key == begin) {
                load_queries(thread, unit, first_four);
            }
            workgroupBarrier();
            if (MANY && first_four + DEPTH < FOURS) {
                fetch_keys(thread, unit, first_key, last_key, first_four + DEPTH);
            } else if (MANY) {
                fetch_values(thread, unit, first_key, last_key);
            }
            for (var four = 0u; four < select(min(DEPTH, FOURS - first_four), DEPTH, FOURS % DEPTH == 0u); four++) {
                var blocks: array<mat4x4<f32>, HELD_FOURS>; // an element of four queries in a column
                for (var h = 0u; h < HELD_FOURS; h++) {
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
                    for (var h = 0u; h < HELD_FOURS; h++) {
                        var score = scores[j * HELD_FOURS + h];
                        score = fma(blocks[h][0], vec4<f32>(key.x), score);
                        score = fma(blocks[h][1], vec4<f32>(key.y), score);
                        score = fma(blocks[h][2], vec4<f32>(key.z), score);
                        scores[j * HELD_FOURS + h] = fma(blocks[h][3], vec4<f32>(key.w), score);
                    }
                }
            }
        }
        // Where every row sees every key there is nothing to hide.
        if (MASK != 0u || first_key + KEYS > seen_by_all) {
            for (var j = 0u; j < THREAD_KEYS; j++) {
                let key = first_key + key_thread + j * KEY_THREADS;
                // A key past the end takes the mask of the last one, and is hidden.
                let real = min(key, last_key - 1u);
                for (var r = 0u; r < HELD; r++) {
                    let score = masked(visibles[r], real, scores[j * HELD_FOURS + r / 4u][r % 4u]);
                    scores[j * HELD_FOURS + r / 4u][r % 4u] = select(params.hidden, score, key < last_key);
                }
            }
        }
        var maximum = running_maximum;
        for (var h = 0u; h < HELD_FOURS; h++) {
            for (var j = 0u; j < THREAD_KEYS; j++) {
                maximum[h] = max(maximum[h], scores[j * HELD_FOURS + h]);
            }
        }
        maximum = row_maximum(row_thread, key_thread, maximum);
        for (var h = 0u; h < HELD_FOURS; h++) {
            let correction = exp(running_maximum[h] - maximum[h]);
            running_maximum[h] = maximum[h];
            exp_sum[h] *= correction;
            for (var j = 0u; j < THREAD_KEYS; j++) {
                let score = scores[j * HELD_FOURS + h];
                let weight = select(exp(score - running_maximum[h]), vec4<f32>(), score < vec4<f32>(LOWEST));
                exp_sum[h] += weight;
                weights[weight_place(key_thread + j * KEY_THREADS, row_thread + h * ROW_THREADS)] = weight;
            }
            for (var c = 0u; c < COLUMNS; c++) {
                for (var r = 0u; r < 4u; r++) {
                    sums[c * HELD + h * 4u + r] *= correction[r];
                }
            }
        }
        let count = min(KEYS, last_key - first_key);
        for (var first = 0u; first < count; first += PIECE) {
            if (first > 0u) {
                workgroupBarrier();
            }
            if (MANY) {
                stage_values(thread);
            }
            workgroupBarrier();
            if (MANY && first + PIECE < count) {
                fetch_values(thread, unit, first_key + first + PIECE, last_key);
            } else if (MANY && first_key + KEYS < last_key) {
                fetch_keys(thread, unit, first_key + KEYS, last_key, 0u);
            }
            // Keys past the end have no weight and no value, so a step is always whole.
            for (var j = 0u; j < min(PIECE, count - first); j += STEP) {
                for (var s = 0u; s < STEP; s++) {
                    var weight: Held;
                    for (var h = 0u; h < HELD_FOURS; h++) {
                        weight[h] = weights[weight_place(first + j + s, row_thread + h * ROW_THREADS)];
                    }
                    let place = key_place(unit, first_key + j + s);
                    for (var c = 0u; c < COLUMNS; c++) {
                        var value: vec4<f32>;
                        if (MANY) {
                            value = stage[(j + s) * FOURS + column_four(key_thread, c)];
                        } else {
                            value = value_four(place, column_four(key_thread, c));
                        }
                        for (var r = 0u; r < HELD; r++) {
                            let i = c * HELD + r;
                            sums[i] = fma(vec4<f32>(weight[r / 4u][r % 4u]), value, sums[i]);
                        }
                    }
                }
            }
        }
    }
    exp_sum = row_sum(row_thread, key_thread, exp_sum);
    for (var h = 0u; h < HELD_FOURS; h++) {
        for (var r = 0u; r < 4u; r++) {
            let tile_row = (row_thread + h * ROW_THREADS) * 4u + r;
            let whole = exp_sum[h][r];
            for (var c = 0u; c < COLUMNS; c++) {
                let four = key_thread + c * KEY_THREADS;
                let sum = sums[c * HELD + h * 4u + r];
                if (four < FOURS && first_row + tile_row < params.rows) {
                    if (params.splits > 1u) {
                        store_split(work * TILE_ROWS + tile_row, four, sum, running_maximum[h][r], whole);
                    } else {
                        store(query_place(unit, first_row + tile_row), four, sum / select(whole, 1.0, whole == 0.0));
                    }
                }
            }
        }
    }
}

// Threads past the head sum its last column once more, which nobody looks at.
fn column_four(key_thread: u32, c: u32) -> u32 {
    return select(min(key_thread + c * KEY_THREADS, FOURS - 1u), key_thread + c * KEY_THREADS, FOURS % KEY_THREADS == 0u);
}
