// A 4-bit linear layer of one row of bytes: a unit is four columns, PARTS threads share its depth. The sums are those of
// q4_bytes_row.wgsl to the last bit. They may wait for the factor of a norm.
// unchecked: columns and groups are held below the sizes that planning checked.
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 256;

const PLACES: u32 = ACROSS;

// include parts
// include q4_bytes
// include q4_bytes_four
// include q4_total
// include parts_meet, by lanes parts_meet_lanes
// include q4_put
// include q4_put_units

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let unit = unit_of(group_index(group, grid), lane);
    let column = min(unit * 4u, params.columns - 1u);
    let part = part_of(lane);
    if (part == 0u) {
        expect_four(0u, column);
    }
    var mine = Total();
    for (var i = part; i < groups(); i += SHARE) {
        mine = plus_group(mine, fetch(column, i), x[i * 3u], x[i * 3u + 1u], bitcast<vec4<f32>>(x[i * 3u + 2u]));
    }
    let total = across_parts(lane, mine);
    put_unit(lane, unit, lane / SHARE, part == 0u, sums_of(total));
}
