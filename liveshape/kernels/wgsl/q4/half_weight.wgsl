// The weight of a layer as halves for matrix units, [N, K], each column divided by a power of two that keeps its largest
// number in their range. A workgroup takes four columns; a scale is for at least eight neighbours of the depth.
// unchecked: columns and depth are those of the tensors, which planning checked.
// TScale: f32, f16
override WG: u32 = 256;

const COLUMNS: u32 = 4;
const THREADS: u32 = WG / COLUMNS; // of a column

struct Params {
    columns: u32, // N
    depth: u32, // K
    column_bytes: u32, // of the weight
    weight_words: u32,
    scale_stride: u32, // from group to group
}
@group(0) @binding(0) var<storage, read_write> halves: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> factors: array<f32>; // of columns, and behind them of rows
@group(0) @binding(2) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> scales: array<vec4<TScale>>;
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> largest_of: array<f32, WG>;

#include q4/scales
#include q4/weight_codes
#include quantization/half_exponent

fn largest_scale(column: u32, first: u32) -> f32 {
    var most = 0.0;
    let groups = (params.depth + GROUP - 1u) / GROUP;
    for (var i = first; i < groups; i += THREADS) {
        var bound = abs(scale_one(i * params.scale_stride + column)) * select(8.0, 128.0, BITS == 8u);
        if (MINIMA) {
            bound += abs(scale_one(i * params.scale_stride + params.scale_stride / 2u + column));
        }
        most = max(most, bound);
    }
    return most;
}

// Four neighbours of a column.
fn four_floats(column: u32, k: u32) -> vec4<f32> {
    let at = k / GROUP * params.scale_stride + column;
    var minimum = 0.0;
    if (MINIMA) {
        minimum = scale_one(at + params.scale_stride / 2u);
    }
    return dequantized(four_codes(column, k), vec4<f32>(scale_one(at)), vec4<f32>(minimum));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let eights = params.depth / 8u;
    let own = thread % THREADS;
    for (var first = group_index(group, grid) * COLUMNS; first < params.columns; first += grid.x * grid.y * grid.z * COLUMNS) {
        let column = min(first + thread / THREADS, params.columns - 1u);
        largest_of[thread] = largest_scale(column, own);
        for (var half = THREADS / 2u; half > 0u; half /= 2u) {
            workgroupBarrier();
            if (own < half) {
                largest_of[thread] = max(largest_of[thread], largest_of[thread + half]);
            }
        }
        workgroupBarrier();
        let scale = half_scale(largest_of[thread - own]);
        if (own == 0u) {
            factors[column] = scale.factor;
        }
        for (var eight = own; eight < eights; eight += THREADS) {
            halves[column * eights + eight] = eight_halves(
                four_floats(column, eight * 8u) * scale.inverse, four_floats(column, eight * 8u + 4u) * scale.inverse,
            );
        }
        workgroupBarrier();
    }
}
