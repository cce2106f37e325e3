// Attention of few rows, bound by reading keys and values once: a workgroup takes one split of the context for up to
// ROWS rows. LANES threads score a key together; a thread weighs the scores of one row; then neighbouring threads sum
// neighbouring columns of the values for all rows.
// unchecked: places in the workgroup's memory follow from constants, rows and keys are held below the live ones.
// T: f32, f16
// TRow: f32, f16
// TMask: f32, f16, u32
override WG: u32 = 256;
override ROWS: u32 = 1; // a power of two
override LANES: u32 = 4; // a power of two
override CHUNK: u32 = 128; // keys between two looks at the highest score

@group(0) @binding(0) var<storage, read_write> out: array<TRow>;
@group(0) @binding(1) var<storage, read_write> split_results: array<f32>; // per split and row: HEAD sums, their top, their mass
@group(0) @binding(2) var<storage, read> queries: array<TRow>;
@group(0) @binding(3) var<storage, read> keys: array<V>;
@group(0) @binding(4) var<storage, read> values: array<V>;
@group(0) @binding(5) var<storage, read> mask: array<TMask>;
@group(0) @binding(6) var<uniform> params: Params;

#include attention/params
#include attention/operands

const SLICE: u32 = (FOURS + LANES - 1) / LANES; // fours of a query that a thread keeps
const QUERY_FOURS: u32 = ROWS * SLICE;
const SCORERS: u32 = WG / LANES;
const KEY_SHARES: u32 = max(1u, WG / FOURS); // of a chunk's keys, summed side by side
const COLUMNS: u32 = (FOURS + WG - 1) / WG; // fours of the values that a thread sums
const SUMS: u32 = ROWS * COLUMNS;
const TOGETHER: u32 = min(ROWS, max(1u, 256u / WG)); // rows whose sums fit the workgroup's memory at once
const MANY: bool = WG >= 64; // threads that wait for memory rather than for arithmetic
const TURNS: u32 = select(1u, max(1u, 8u / SLICE), MANY); // keys of a thread that are on their way at once
const AT_ONCE: u32 = TURNS * SLICE;
const AHEAD: u32 = select(1u, 8u, MANY); // values of a thread that are
const FOLDED: u32 = min(WG, 32u); // of what the lanes found, before every thread reads all

var<workgroup> shares: array<f32, CHUNK * ROWS * LANES>; // of scores; the first of a score becomes its weight
var<workgroup> of_lanes: array<f32, WG>;
var<workgroup> shrinks: array<f32, ROWS>;
var<private> keys_ahead: array<vec4<f32>, AT_ONCE>;
var<private> values_ahead: array<vec4<f32>, AHEAD>;
var<workgroup> sums_of_part: array<vec4<f32>, WG * TOGETHER>;

// Folded once, then read by every thread rather than halved step by step: a barrier costs more than these few reads.
fn put_highest(lane: u32, found: f32) {
    of_lanes[lane] = found;
    workgroupBarrier();
    if (WG > FOLDED) {
        if (lane < FOLDED) {
            var highest = found;
            for (var i = lane + FOLDED; i < WG; i += FOLDED) {
                highest = max(highest, of_lanes[i]);
            }
            of_lanes[lane] = highest;
        }
        workgroupBarrier();
    }
}

fn highest_of(row: u32) -> f32 {
    var highest = LOWEST;
    for (var i = row; i < FOLDED; i += ROWS) {
        highest = max(highest, of_lanes[i]);
    }
    return highest;
}

fn put_total(lane: u32, found: f32) {
    of_lanes[lane] = found;
    workgroupBarrier();
    if (WG > FOLDED) {
        if (lane < FOLDED) {
            var total = found;
            for (var i = lane + FOLDED; i < WG; i += FOLDED) {
                total += of_lanes[i];
            }
            of_lanes[lane] = total;
        }
        workgroupBarrier();
    }
}

fn total_of(row: u32) -> f32 {
    var total = 0.0;
    for (var i = row; i < FOLDED; i += ROWS) {
        total += of_lanes[i];
    }
    return total;
}

// Past the end of the chunk comes its last key, past the head its last four: neither is looked at.
fn fetch_keys(unit: Unit, chunk: u32, first: u32, count: u32, first_four: u32) {
    for (var t = 0u; t < TURNS; t++) {
        let place = key_place(unit, chunk + min(first + t * SCORERS, count - 1u));
        for (var i = 0u; i < SLICE; i++) {
            keys_ahead[t * SLICE + i] = key_four(place, min(first_four + i * LANES, FOURS - 1u));
        }
    }
}

fn fetch_values(unit: Unit, chunk: u32, first: u32, count: u32, four: u32) {
    for (var u = 0u; u < AHEAD; u++) {
        values_ahead[u] = value_four(key_place(unit, chunk + min(first + u * KEY_SHARES, count - 1u)), four);
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group_index(group, grid);
    let split = index % params.splits;
    if (index / params.splits >= params.units) {
        return;
    }
    let unit = unit_at(index / params.splits);
    let first_row = unit.block * ROWS;
    var query: array<vec4<f32>, QUERY_FOURS>;
    for (var r = 0u; r < ROWS; r++) {
        let place = query_place(unit, min(first_row + r, params.rows - 1u));
        for (var i = 0u; i < SLICE; i++) {
            let four = lane % LANES + i * LANES;
            if (four < FOURS) {
                query[r * SLICE + i] = query_four(place, four);
            }
        }
    }
    // Threads sum neighbouring columns of a part of the keys, or all keys where there are more columns than threads.
    let first_column = select(lane % FOURS, min(lane, FOURS - 1u), COLUMNS > 1u);
    let first_of_share = select(select(CHUNK, lane / FOURS, lane < KEY_SHARES * FOURS), 0u, COLUMNS > 1u);
    // Every thread weighs scores of one row only.
    let own_row = lane % ROWS;
    let sight = sight_of(unit, first_row + own_row);
    var top = LOWEST;
    var mass = 0.0;
    var sums: array<vec4<f32>, SUMS>;
    let first_key = split * params.split_keys;
    let last_key = min(first_key + params.split_keys, params.context);
    for (var chunk = first_key; chunk < last_key; chunk += CHUNK) {
        let count = min(CHUNK, last_key - chunk);
        // Values do not wait for the scores.
        if (MANY) {
            fetch_values(unit, chunk, first_of_share, count, first_column);
        }
        for (var first = lane / LANES; first < count; first += SCORERS * TURNS) {
            if (MANY) {
                fetch_keys(unit, chunk, first, count, lane % LANES);
            }
            for (var t = 0u; t < TURNS; t++) {
                let j = first + t * SCORERS;
                let place = key_place(unit, chunk + j);
                var dots = array<f32, ROWS>();
                for (var i = 0u; i < SLICE; i++) {
                    let four = lane % LANES + i * LANES;
                    if (four < FOURS) {
                        var key: vec4<f32>;
                        if (MANY) {
                            key = keys_ahead[t * SLICE + i];
                        } else {
                            key = key_four(place, four);
                        }
                        for (var r = 0u; r < ROWS; r++) {
                            dots[r] = dot_onto(dots[r], query[r * SLICE + i], key);
                        }
                    }
                }
                if (TURNS == 1u || j < count) {
                    for (var r = 0u; r < ROWS; r++) {
                        shares[(j * ROWS + r) * LANES + lane % LANES] = dots[r];
                    }
                }
            }
        }
        workgroupBarrier();
        var highest = top;
        for (var i = lane; i < count * ROWS; i += WG) {
            var score = 0.0;
            for (var l = 0u; l < LANES; l++) {
                score += shares[i * LANES + l];
            }
            score = masked(sight, chunk + i / ROWS, score);
            shares[i * LANES] = score;
            highest = max(highest, score);
        }
        put_highest(lane, highest);
        highest = highest_of(own_row);
        let shrink = exp(top - highest);
        top = highest;
        mass *= shrink;
        for (var i = lane; i < count * ROWS; i += WG) {
            let weight = weight_of(shares[i * LANES], top);
            shares[i * LANES] = weight;
            mass += weight;
        }
        if (lane < ROWS) {
            shrinks[lane] = shrink;
        }
        workgroupBarrier();
        for (var c = 0u; c < COLUMNS; c++) {
            for (var r = 0u; r < ROWS; r++) {
                sums[c * ROWS + r] *= shrinks[r];
            }
            let four = select(first_column, min(lane + c * WG, FOURS - 1u), COLUMNS > 1u);
            for (var first = first_of_share; first < count; first += KEY_SHARES * AHEAD) {
                if (MANY && (c > 0u || first != first_of_share)) {
                    fetch_values(unit, chunk, first, count, four);
                }
                for (var u = 0u; u < AHEAD; u++) {
                    let j = first + u * KEY_SHARES;
                    if (AHEAD == 1u || j < count) {
                        var value: vec4<f32>;
                        if (MANY) {
                            value = values_ahead[u];
                        } else {
                            value = value_four(key_place(unit, chunk + j), four);
                        }
                        for (var r = 0u; r < ROWS; r++) {
                            let i = c * ROWS + r;
                            sums[i] = fma(vec4<f32>(shares[(j * ROWS + r) * LANES]), value, sums[i]);
                        }
                    }
                }
            }
        }
        workgroupBarrier();
    }

    put_total(lane, mass);
    for (var c = 0u; c < COLUMNS; c++) {
        let wide = min(FOURS - c * WG, WG);
        for (var first = 0u; first < ROWS; first += TOGETHER) {
            if (c + first > 0u) {
                workgroupBarrier();
            }
            for (var r = 0u; r < TOGETHER; r++) {
                sums_of_part[r * WG + lane] = sums[c * ROWS + first + r];
            }
            workgroupBarrier();
            for (var i = lane; i < wide * TOGETHER; i += WG) {
                var total = vec4<f32>();
                for (var p = 0u; p < KEY_SHARES; p++) {
                    total += sums_of_part[i / wide * WG + p * FOURS + i % wide];
                }
                let r = first + i / wide;
                let four = c * WG + i % wide;
                if (params.splits > 1u) {
                    let start = (index * ROWS + r) * (HEAD + 2u);
                    for (var e = 0u; e < width_of(four); e++) {
                        split_results[start + four * 4u + e] = total[e];
                    }
                } else if (first_row + r < params.rows) {
                    let whole = total_of(r);
                    put(query_place(unit, first_row + r), four, total / select(whole, 1.0, whole == 0.0));
                }
            }
        }
    }
    if (params.splits > 1u && lane < ROWS) {
        split_results[(index * ROWS + lane) * (HEAD + 2u) + HEAD] = top;
        split_results[(index * ROWS + lane) * (HEAD + 2u) + HEAD + 1u] = total_of(lane);
    }
}
