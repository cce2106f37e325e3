// What the PARTS threads of a unit, four columns of ROWS rows, found: added up and put.
override WG: u32 = 128;

const SHARE: u32 = min(PARTS, WG); // a device may clamp the workgroup below PARTS
const ACROSS: u32 = WG / SHARE; // units of a workgroup

var<workgroup> of_parts: array<vec4<f32>, WG * ROWS>;

fn put_sums(lane: u32, first_unit: u32, per_row: u32, upper: mat4x4<f32>, lower: mat4x4<f32>) {
    var first = upper;
    var second = lower;
    for (var r = 0u; r < min(ROWS, 4u); r++) {
        of_parts[lane * ROWS + r] = first[r];
    }
    for (var r = 4u; r < ROWS; r++) {
        of_parts[lane * ROWS + r] = second[r - 4u];
    }
    workgroupBarrier();
    // A thread adds all parts of a row of a unit: these few reads cost less than a barrier for every halving.
    for (var i = lane; i < ACROSS * ROWS; i += WG) {
        var total = vec4<f32>();
        for (var p = 0u; p < SHARE; p++) {
            total += of_parts[(i / ROWS * SHARE + p) * ROWS + i % ROWS];
        }
        let unit = first_unit + i / ROWS;
        put_four(unit / per_row * ROWS + i % ROWS, unit % per_row * 4u, total);
    }
}
