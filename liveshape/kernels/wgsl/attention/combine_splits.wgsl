// Combines what the splits of the context found for a row. SIDE threads share the splits of an element of the output;
// each reads several of them at once and weighs them as the top rises, and one barrier later they are brought together.
// unchecked: places in the workgroup's memory follow from constants, rows are held below the live ones.
// TRow: f32, f16
override WG: u32 = 256;
override ROWS: u32 = 1;
override SIDE: u32 = 1; // a power of two

@group(0) @binding(0) var<storage, read_write> out: array<TRow>;
@group(0) @binding(1) var<storage, read> split_results: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

#include attention/params

const AT_ONCE: u32 = 8;
const ELEMENTS: u32 = WG / SIDE; // of a workgroup

var<workgroup> found_tops: array<f32, WG>;
var<workgroup> found_sums: array<f32, WG>;
var<workgroup> found_masses: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, grid) * ELEMENTS + lane % ELEMENTS;
    let side = lane / ELEMENTS;
    let column = i % HEAD;
    // Past the last row it is read again.
    let row_of_all = min(i / HEAD, params.units * ROWS - 1u);
    let unit = unit_at(row_of_all / ROWS);
    let row = unit.block * ROWS + row_of_all % ROWS;
    let stride = ROWS * (HEAD + 2u);
    let start = row_of_all / ROWS * params.splits * stride + row_of_all % ROWS * (HEAD + 2u);
    var top = LOWEST;
    var sum = 0.0;
    var mass = 0.0;
    for (var first = side; first < params.splits; first += AT_ONCE * SIDE) {
        var tops: array<f32, AT_ONCE>;
        var sums: array<f32, AT_ONCE>;
        var masses: array<f32, AT_ONCE>;
        // Past the last split it is read again.
        for (var s = 0u; s < AT_ONCE; s++) {
            let place = start + min(first + s * SIDE, params.splits - 1u) * stride;
            tops[s] = split_results[place + HEAD];
            sums[s] = split_results[place + column];
            masses[s] = split_results[place + HEAD + 1u];
        }
        var highest = top;
        for (var s = 0u; s < AT_ONCE; s++) {
            highest = max(highest, tops[s]);
        }
        let shrink = exp(top - highest);
        top = highest;
        sum *= shrink;
        mass *= shrink;
        for (var s = 0u; s < AT_ONCE; s++) {
            if (first + s * SIDE < params.splits) {
                let weight = exp(tops[s] - top);
                sum = fma(weight, sums[s], sum);
                mass = fma(weight, masses[s], mass);
            }
        }
    }
    if (SIDE > 1u) {
        found_tops[lane] = top;
        found_sums[lane] = sum;
        found_masses[lane] = mass;
        workgroupBarrier();
        for (var s = lane % ELEMENTS; s < WG; s += ELEMENTS) {
            top = max(top, found_tops[s]);
        }
        sum = 0.0;
        mass = 0.0;
        for (var s = lane % ELEMENTS; s < WG; s += ELEMENTS) {
            let weight = exp(found_tops[s] - top);
            sum = fma(weight, found_sums[s], sum);
            mass = fma(weight, found_masses[s], mass);
        }
    }
    if (side == 0u && i / HEAD < params.units * ROWS && row < params.rows) {
        out[query_place(unit, row) + column] = TRow(sum / select(mass, 1.0, mass == 0.0));
    }
}
