// Per row, the scale and the zero point of an asymmetric range of integers; a workgroup takes four rows, whose zero
// points are the bytes of one word.
// T: f32, f16
// TScale: f32, f16
override WG: u32 = 128;

struct Params {
    rows: u32,
    width: u32, // in vectors
    low: f32, // the range of the integers
    high: f32,
    eps: f32, // the smallest scale
}
@group(0) @binding(0) var<storage, read_write> scale: array<TScale>;
@group(0) @binding(1) var<storage, read_write> zero_point: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<V>;
@group(0) @binding(3) var<uniform> params: Params;

// Of four rows: the range of their values, which zero always belongs to, and the bits of the largest magnitude, because
// min and max may drop a NaN.
struct Total {
    least: vec4<f32>,
    most: vec4<f32>,
    largest: vec4<u32>,
}

fn combine(a: Total, b: Total) -> Total {
    return Total(min(a.least, b.least), max(a.most, b.most), max(a.largest, b.largest));
}

// include parts

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let unit = group_index(group, grid);
    var mine = Total();
    for (var i = lane; i < params.width; i += WG) {
        for (var j = 0u; j < 4u; j++) {
            let four = V_math(x[min(unit * 4u + j, params.rows - 1u) * params.width + i]);
            for (var place = 0u; place < V_lanes; place++) {
                let value = V_at(four, place);
                mine.least[j] = min(mine.least[j], value);
                mine.most[j] = max(mine.most[j], value);
                mine.largest[j] = max(mine.largest[j], bitcast<u32>(value) & 0x7fffffffu);
            }
        }
    }
    var total = across_parts(lane, mine);
    if (lane > 0u || unit * 4u >= params.rows) {
        return;
    }
    var word = 0u;
    for (var j = 0u; j < 4u; j++) {
        let step = TScale(max((total.most[j] - total.least[j]) / (params.high - params.low), params.eps));
        let zero = clamp(params.low - round(total.least[j] / f32(step)), params.low, params.high);
        word |= (bitcast<u32>(i32(zero)) & 0xffu) << (j * 8u);
        let row = unit * 4u + j;
        if (row < params.rows) {
            scale[row] = step;
            if (total.largest[j] > 0x7f800000u) {
                scale[row] = TScale(bitcast<f32>(total.largest[j]));
            }
        }
    }
    zero_point[unit] = word;
}
