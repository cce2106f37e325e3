// Combines what the splits of the context found for a row: a thread per element of the output.
// TRow: f32, f16
override WG: u32 = 64;
override ROWS: u32 = 1;

@group(0) @binding(0) var<storage, read_write> out: array<TRow>;
@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

// include attention_params

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
    for (var split = 0u; split < params.splits; split++) {
        top = max(top, parts[start + split * stride + HEAD]);
    }
    var sum = 0.0;
    var mass = 0.0;
    for (var split = 0u; split < params.splits; split++) {
        let place = start + split * stride;
        let weight = exp(parts[place + HEAD] - top);
        sum = fma(weight, parts[place + column], sum);
        mass = fma(weight, parts[place + HEAD + 1u], mass);
    }
    out[query_place(unit, row) + column] = TRow(sum / select(mass, 1.0, mass == 0.0));
}
