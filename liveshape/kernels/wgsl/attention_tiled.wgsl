// Attention of many rows: a workgroup takes TILE_ROWS of them through the context, KEYS at a time, and keeps only the
// running top, mass and sums of each. A thread holds four rows: first against some keys, then against some columns.
// T: f32, f16
// TRow: f32, f16
// TMask: f32, f16, u32
override WG: u32 = 128;
override TILE_ROWS: u32 = 64;

@group(0) @binding(0) var<storage, read_write> out: array<TRow>;
@group(0) @binding(1) var<storage, read> queries: array<TRow>;
@group(0) @binding(2) var<storage, read> keys: array<V>;
@group(0) @binding(3) var<storage, read> values: array<V>;
@group(0) @binding(4) var<storage, read> mask: array<TMask>;
@group(0) @binding(5) var<uniform> params: Params;

// include attention_params
// include attention_operands

const KEYS: u32 = 32;
const DEPTH: u32 = 4; // fours of the head at a time
const PITCH: u32 = DEPTH + 1; // one more, so that neighbouring rows lie in different banks
const ROW_THREADS: u32 = TILE_ROWS / 4;
const KEY_THREADS: u32 = WG / ROW_THREADS;
const THREAD_KEYS: u32 = (KEYS + KEY_THREADS - 1) / KEY_THREADS;
const COLUMNS: u32 = (FOURS + KEY_THREADS - 1) / KEY_THREADS; // fours of a thread
const PER_THREAD: u32 = COLUMNS * 4;

var<workgroup> tile_queries: array<vec4<f32>, TILE_ROWS * PITCH>;
var<workgroup> tile_keys: array<vec4<f32>, KEYS * PITCH>;
var<workgroup> weights: array<vec4<f32>, KEYS * ROW_THREADS>; // of a key for the four rows of a thread

fn load_queries(lane: u32, unit: Unit, first_four: u32) {
    for (var i = lane; i < TILE_ROWS * DEPTH; i += WG) {
        let row = unit.block * TILE_ROWS + i / DEPTH;
        let four = first_four + i % DEPTH;
        var block = vec4<f32>();
        if (row < params.rows && four < FOURS) {
            block = query_four(query_place(unit, row), four);
        }
        tile_queries[(i / DEPTH) * PITCH + i % DEPTH] = block;
    }
}

fn load_keys(lane: u32, unit: Unit, first_key: u32, last_key: u32, first_four: u32) {
    for (var i = lane; i < KEYS * DEPTH; i += WG) {
        let key = first_key + i / DEPTH;
        let four = first_four + i % DEPTH;
        var block = vec4<f32>();
        if (key < last_key && four < FOURS) {
            block = key_four(key_place(unit, key), four);
        }
        tile_keys[(i / DEPTH) * PITCH + i % DEPTH] = block;
    }
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
    // Under a causal mask the last rows see most keys: they begin first.
    let unit = unit_at(params.units - 1u - index);
    let row_thread = lane / KEY_THREADS;
    let key_thread = lane % KEY_THREADS;
    let first_row = unit.block * TILE_ROWS;
    var last_key = params.context;
    if (params.causal != 0u) {
        let last_row = min(first_row + TILE_ROWS, params.rows) - 1u;
        last_key = min(last_key, params.position + last_row / params.group + 1u);
    }
    var sights: array<Sight, 4>;
    for (var r = 0u; r < 4u; r++) {
        sights[r] = sight_of(unit, first_row + row_thread * 4u + r);
    }
    var top = vec4<f32>(LOWEST);
    var mass = vec4<f32>(); // of this thread's keys
    var sums: array<vec4<f32>, PER_THREAD>; // four rows of one column four, then of the next
    for (var first_key = 0u; first_key < last_key; first_key += KEYS) {
        var scores = array<vec4<f32>, THREAD_KEYS>();
        for (var first_four = 0u; first_four < FOURS; first_four += DEPTH) {
            load_queries(lane, unit, first_four);
            load_keys(lane, unit, first_key, last_key, first_four);
            workgroupBarrier();
            for (var four = 0u; four < DEPTH; four++) {
                let block = mat4x4<f32>(
                    tile_queries[(row_thread * 4u) * PITCH + four],
                    tile_queries[(row_thread * 4u + 1u) * PITCH + four],
                    tile_queries[(row_thread * 4u + 2u) * PITCH + four],
                    tile_queries[(row_thread * 4u + 3u) * PITCH + four],
                );
                for (var j = 0u; j < THREAD_KEYS; j++) {
                    let key = tile_keys[(key_thread + j * KEY_THREADS) * PITCH + four];
                    for (var r = 0u; r < 4u; r++) {
                        scores[j][r] = dot_onto(scores[j][r], block[r], key);
                    }
                }
            }
            workgroupBarrier();
        }
        var highest = top;
        for (var j = 0u; j < THREAD_KEYS; j++) {
            let key = first_key + key_thread + j * KEY_THREADS;
            // A key past the end takes the mask of the last one, and is hidden.
            let real = min(key, last_key - 1u);
            for (var r = 0u; r < 4u; r++) {
                scores[j][r] = select(params.hidden, masked(sights[r], real, scores[j][r]), key < last_key);
            }
            highest = max(highest, scores[j]);
        }
        weights[key_thread * ROW_THREADS + row_thread] = highest;
        workgroupBarrier();
        for (var t = 0u; t < KEY_THREADS; t++) {
            highest = max(highest, weights[t * ROW_THREADS + row_thread]);
        }
        workgroupBarrier();
        let shrink = exp(top - highest);
        top = highest;
        mass *= shrink;
        for (var j = 0u; j < THREAD_KEYS; j++) {
            var weight = vec4<f32>();
            for (var r = 0u; r < 4u; r++) {
                weight[r] = weight_of(scores[j][r], top[r]);
            }
            mass += weight;
            weights[(key_thread + j * KEY_THREADS) * ROW_THREADS + row_thread] = weight;
        }
        for (var i = 0u; i < PER_THREAD; i++) {
            sums[i] *= shrink[i % 4u];
        }
        workgroupBarrier();
        for (var j = 0u; j < min(KEYS, last_key - first_key); j++) {
            let place = key_place(unit, first_key + j);
            let weight = weights[j * ROW_THREADS + row_thread];
            for (var c = 0u; c < COLUMNS; c++) {
                let four = key_thread + c * KEY_THREADS;
                if (four < FOURS) {
                    let value = value_four(place, four);
                    for (var r = 0u; r < 4u; r++) {
                        sums[c * 4u + r] = fma(vec4<f32>(weight[r]), value, sums[c * 4u + r]);
                    }
                }
            }
        }
    }
    workgroupBarrier();
    weights[key_thread * ROW_THREADS + row_thread] = mass;
    workgroupBarrier();
    var total = vec4<f32>();
    for (var t = 0u; t < KEY_THREADS; t++) {
        total += weights[t * ROW_THREADS + row_thread];
    }
    total = select(total, vec4<f32>(1.0), total == vec4<f32>());
    for (var r = 0u; r < 4u; r++) {
        let row = first_row + row_thread * 4u + r;
        for (var c = 0u; c < COLUMNS; c++) {
            let four = key_thread + c * KEY_THREADS;
            if (row < params.rows && four < FOURS) {
                put(query_place(unit, row), four, sums[c * 4u + r] / total[r]);
            }
        }
    }
}
