// selected[row, i] = (key, index) of the `keep` elements of a row that sort first, in the order of their indices, for a
// device with few threads, whose shuffles are cheap and whose barriers are not: a row per workgroup of one subgroup.
// The key of the last of them is found by four bits at a time: sixteen keys, of which each lane counts what is not below
// them. Lanes have parts of the row one behind the other.
// T: f32, f16, i32, u32
override WG: u32 = 8; // the size of a subgroup
override LARGEST: bool = true;

const DIGITS: u32 = 8u;

struct Params {
    rows: u32,
    length: u32, // in vectors
    inner: u32, // elements of a row lie that far apart
    keep: u32,
}
@group(0) @binding(0) var<storage, read_write> selected: array<vec2<i32>>;
@group(0) @binding(1) var<storage, read> x: array<V>;

#include common/element_keys

// A key that is above those that sort behind it.
fn key_at(values: V_math, lane: u32) -> u32 {
    let key = element_key(V_at(values, lane));
    return select(~key, key, LARGEST);
}

fn not_below(key: u32, limits: vec4<u32>) -> vec4<u32> {
    return select(vec4<u32>(0u), vec4<u32>(1u), vec4<u32>(key) >= limits);
}

fn lane_sum(mine: vec4<u32>) -> vec4<u32> {
    var total = mine;
    for (var step = 1u; step < WG; step *= 2u) {
        total += subgroupShuffleXor(total, step);
    }
    return total;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_index(group, grid);
    if (row >= params.rows) {
        return;
    }
    let begin = row / params.inner * params.length * params.inner + row % params.inner;
    let share = (params.length + WG - 1u) / WG;
    let first = min(lane * share, params.length);
    let last = min(first + share, params.length);
    var least = 0u; // the highest key known that at least `keep` are not below
    var reached = params.length * V_lanes; // how many are not
    for (var digit = 0u; digit < DIGITS; digit++) {
        let step = 1u << (28u - digit * 4u);
        let limits = vec4<u32>(least) + vec4<u32>(0u, 1u, 2u, 3u) * step;
        var counts_0 = vec4<u32>();
        var counts_1 = vec4<u32>();
        var counts_2 = vec4<u32>();
        var counts_3 = vec4<u32>();
        // No turns where the elements are known: what is shuffled must not depend on that.
        let end = select(last, first, reached == params.keep);
        for (var j = first; j < end; j++) {
            let values = V_math(x[begin + j * params.inner]);
            for (var c = 0u; c < V_lanes; c++) {
                let key = key_at(values, c);
                counts_0 += not_below(key, limits);
                counts_1 += not_below(key, limits + 4u * step);
                counts_2 += not_below(key, limits + 8u * step);
                counts_3 += not_below(key, limits + 12u * step);
            }
        }
        var counts = array(lane_sum(counts_0), lane_sum(counts_1), lane_sum(counts_2), lane_sum(counts_3));
        if (reached != params.keep) {
            for (var i = 15u; i > 0u; i--) {
                let count = counts[i / 4u][i % 4u];
                if (count >= params.keep) {
                    least += i * step;
                    reached = count;
                    break;
                }
            }
        }
    }
    var mine = vec4<u32>(); // above and equal
    for (var j = first; j < last; j++) {
        let values = V_math(x[begin + j * params.inner]);
        for (var c = 0u; c < V_lanes; c++) {
            let key = key_at(values, c);
            mine += select(vec4<u32>(0u), vec4<u32>(1u), vec4<bool>(key > least, key == least, false, false));
        }
    }
    var before = vec4<u32>();
    var total = vec4<u32>();
    for (var other = 0u; other < WG; other++) {
        let theirs = subgroupShuffle(mine, other);
        total += theirs;
        before += select(vec4<u32>(0u), theirs, other < lane);
    }
    let room = params.keep - total.x;
    var equal = before.y;
    var place = row * params.keep + before.x + min(equal, room);
    for (var j = first; j < last; j++) {
        let values = V_math(x[begin + j * params.inner]);
        for (var c = 0u; c < V_lanes; c++) {
            let key = key_at(values, c);
            let taken = key > least || (key == least && equal < room);
            if (taken) {
                selected[place] = bitcast<vec2<i32>>(vec2<u32>(key, j * V_lanes + c));
                place++;
            }
            equal += select(0u, 1u, key == least);
        }
    }
}
