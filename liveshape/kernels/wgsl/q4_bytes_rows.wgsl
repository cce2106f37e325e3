// A 4-bit linear layer of few rows of bytes, bound by reading the weight once: a unit is four columns of up to ROWS rows,
// and PARTS threads share its depth.
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 128;
override ROWS: u32 = 1; // that a thread takes: 1, 2, 4 or 8

struct Total {
    upper: mat4x4<f32>, // per row, the sums of four columns
    lower: mat4x4<f32>,
}

fn combine(a: Total, b: Total) -> Total {
    return Total(a.upper + b.upper, a.lower + b.lower);
}

// include parts
// include q4_bytes
// include q4_bytes_four
// include q4_put

fn plus_row(sums: vec4<f32>, four: Four, row: u32, group: u32) -> vec4<f32> {
    let place = (min(row, params.rows - 1u) * groups() + group) * 3u;
    return plus_bytes(sums, four, x[place], x[place + 1u], bitcast<vec4<f32>>(x[place + 2u]));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let per_row = (params.columns + 3u) / 4u;
    let unit = unit_of(group_index(group, grid), lane);
    let row = unit / per_row * ROWS;
    let column = unit % per_row * 4u;
    let part = part_of(lane);
    var mine = Total();
    for (var i = part; i < groups(); i += SHARE) {
        let four = fetch(column, i);
        mine.upper[0] = plus_row(mine.upper[0], four, row, i);
        if (ROWS > 1u) {
            mine.upper[1] = plus_row(mine.upper[1], four, row + 1u, i);
        }
        if (ROWS > 2u) {
            mine.upper[2] = plus_row(mine.upper[2], four, row + 2u, i);
            mine.upper[3] = plus_row(mine.upper[3], four, row + 3u, i);
        }
        if (ROWS > 4u) {
            mine.lower[0] = plus_row(mine.lower[0], four, row + 4u, i);
            mine.lower[1] = plus_row(mine.lower[1], four, row + 5u, i);
            mine.lower[2] = plus_row(mine.lower[2], four, row + 6u, i);
            mine.lower[3] = plus_row(mine.lower[3], four, row + 7u, i);
        }
    }
    var total = across_parts(lane, mine);
    for (var r = part; r < min(ROWS, 4u); r += SHARE) {
        put_four(row + r, column, total.upper[r]);
    }
    for (var r = part; r + 4u < ROWS; r += SHARE) {
        put_four(row + 4u + r, column, total.lower[r]);
    }
}
