// The weight of a layer as halves for matrix units, in blocks of columns, each divided by a power of two that keeps its
// largest number in their range. A workgroup takes 16 columns of a split of the depth, a thread 32 neighbours of one at
// a time, of which at least eight have one scale.
// unchecked: columns and depth are those of the tensors, which planning checked; columns of the weight begin at vectors.
override WG: u32 = 256;

const COLUMNS: u32 = 16;
const THREADS: u32 = WG / COLUMNS; // of a column

struct Params {
    columns: u32, // N
    depth: u32, // K
    column_bytes: u32, // of the weight
    weight_words: u32,
    scale_stride: u32, // from group to group
    splits: u32, // of the depth
}
@group(0) @binding(0) var<storage, read_write> halves: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> factors: array<f32>; // of columns
@group(0) @binding(2) var<storage, read> weight: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> scales: array<vec4<TScale>>;

var<workgroup> largest_of: array<f32, WG>;

#include q4/scales
#include q4/weight_codes
#include q4/halves
#include quantization/half_exponent
#include quantization/half_blocks

// Eight neighbours of a column.
fn unpacked_eight(column: u32, k: u32, inverse: f32) -> vec4<u32> {
    let at = k / GROUP * params.scale_stride + column;
    let vector = weight[(column * params.column_bytes + k * BITS / 8u) / 16u];
    let first = k * BITS / 32u % 4u;
    return eight_of(vector[first], vector[min(first + 1u, 3u)], scale_one(at) * inverse, minimum_one(at) * inverse);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let bands = (params.columns + COLUMNS - 1u) / COLUMNS;
    for (var i = group_index(group, grid); i < bands * params.splits; i += grid.x * grid.y * grid.z) {
        let column = i % bands * COLUMNS + thread % COLUMNS;
        let existing = min(column, params.columns - 1u);
        let own = thread / COLUMNS;
        let groups = (params.depth + GROUP - 1u) / GROUP;
        largest_of[thread] = largest_weight(existing, own, groups, THREADS);
        for (var half = WG / 2u; half >= COLUMNS; half /= 2u) {
            workgroupBarrier();
            if (thread < half) {
                largest_of[thread] = max(largest_of[thread], largest_of[thread + half]);
            }
        }
        workgroupBarrier();
        let scale = half_scale(largest_of[thread % COLUMNS]);
        let split = i / bands;
        if (split == 0u && own == 0u && column < params.columns) {
            factors[column] = scale.factor;
        }
        if (column < params.columns) {
            for (var k = (split * THREADS + own) * 32u; k < params.depth; k += THREADS * params.splits * 32u) {
                for (var eight = 0u; eight < 4u; eight++) {
                    halves[half_place(column, k / 8u + eight, params.depth / 8u)] =
                        unpacked_eight(column, k + eight * 8u, scale.inverse);
                }
            }
        }
        workgroupBarrier();
    }
}
