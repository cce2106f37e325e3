// Softmax of rows of scores for a product with the values by matrix units: lines of halves of the exponentials, at most one
// each, with zeros behind the last key, and what their sum divides by as the factor of a line. A workgroup takes a row.
// scratch halves, factors, scores
// unchecked: rows and pitch are those of the scratch, which planning checked.
override WG: u32 = 256;

struct Params {
    rows: u32, // of all images
    keys: u32,
    eights: u32, // of keys, which a row of scores is wide
}
@group(0) @binding(0) var<storage, read_write> halves: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> factors: array<f32>;
@group(0) @binding(2) var<storage, read> scores: array<vec4<f32>>;

#include quantization/half_exponent

var<workgroup> found: array<f32, WG>;
var<private> negative_infinity_bits: u32 = 0xff800000u; // a constant expression may be no infinity

fn four_keys() -> vec4<u32> {
    return vec4<u32>(0u, 1u, 2u, 3u);
}

// Four scores; what lies behind the last key is no part of any sum.
fn four_scores(row: u32, four: u32) -> vec4<f32> {
    let outside = vec4<f32>(bitcast<f32>(negative_infinity_bits));
    return select(outside, scores[row * params.eights * 2u + four], four * 4u + four_keys() < vec4<u32>(params.keys));
}

fn exponentials(row: u32, four: u32, most: f32) -> vec4<f32> {
    let inside = four * 4u + four_keys() < vec4<u32>(params.keys);
    return select(vec4<f32>(), exp(four_scores(row, four) - vec4<f32>(most)), inside);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = min(group_index(group, grid), params.rows - 1u);
    var largest = vec4<f32>(bitcast<f32>(negative_infinity_bits));
    for (var four = thread; four < 2u * params.eights; four += WG) {
        largest = max(largest, four_scores(row, four));
    }
    found[thread] = max(max(largest.x, largest.y), max(largest.z, largest.w));
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (thread < half) {
            found[thread] = max(found[thread], found[thread + half]);
        }
    }
    workgroupBarrier();
    let most = found[0];
    workgroupBarrier();
    var sum = 0.0;
    for (var eight = thread; eight < params.eights; eight += WG) {
        let low = exponentials(row, 2u * eight, most);
        let high = exponentials(row, 2u * eight + 1u, most);
        halves[row * params.eights + eight] = eight_halves(low, high);
        sum += dot(low + high, vec4<f32>(1.0));
    }
    found[thread] = sum;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (thread < half) {
            found[thread] += found[thread + half];
        }
    }
    workgroupBarrier();
    if (thread == 0u) {
        factors[row] = 1.0 / found[0];
    }
}
