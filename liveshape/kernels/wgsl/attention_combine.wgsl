// Combines what the splits of the context found for a row: a thread per element of the output, which reads several
// splits at once and weighs them as the top rises.
// TRow: f32, f16
override WG: u32 = 64;
override ROWS: u32 = 1;

@group(0) @binding(0) var<storage, read_write> out: array<TRow>;
@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

// include attention_params

const AT_ONCE: u32 = 8;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, grid) * WG + lane;
    let column = i % HEAD;
    let row_of_all = i / HEAD;
    if (row_of_all >= params.units * ROWS) {
        return;
    }
    let unit = unit_at(row_of_all / ROWS);
    let row = unit.block * ROWS + row_of_all % ROWS;
    if (row >= params.rows) {
        return;
    }
    let stride = ROWS * (HEAD + 2u);
    let start = row_of_all / ROWS * params.splits * stride + row_of_all % ROWS * (HEAD + 2u);
    var top = LOWEST;
    var sum = 0.0;
    var mass = 0.0;
    for (var first = 0u; first < params.splits; first += AT_ONCE) {
        var tops: array<f32, AT_ONCE>;
        var sums: array<f32, AT_ONCE>;
        var masses: array<f32, AT_ONCE>;
        // Past the last split it is read again.
        for (var s = 0u; s < AT_ONCE; s++) {
            let place = start + min(first + s, params.splits - 1u) * stride;
            tops[s] = parts[place + HEAD];
            sums[s] = parts[place + column];
            masses[s] = parts[place + HEAD + 1u];
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
            if (first + s < params.splits) {
                let weight = exp(tops[s] - top);
                sum = fma(weight, sums[s], sum);
                mass = fma(weight, masses[s], mass);
            }
        }
    }
    out[query_place(unit, row) + column] = TRow(sum / select(mass, 1.0, mass == 0.0));
}
