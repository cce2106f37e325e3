// What the PARTS threads of a unit, four columns of ROWS rows, found: added up, and made bytes where 16 units are 32
// neighbours of a gated row. Few rows at a time, since more would not fit into the memory of a workgroup.
override WG: u32 = 256;

const SHARE: u32 = min(PARTS, WG);
const ACROSS: u32 = WG / SHARE; // units of a workgroup, a multiple of 16
const TOGETHER: u32 = min(min(ROWS, 4u), SHARE); // rows at a time, no more than there are threads for

var<workgroup> of_parts: array<vec4<f32>, WG * TOGETHER>;

fn pair_at(place: u32) -> vec2<f32> {
    return of_parts[place].xy;
}

fn put_sums(lane: u32, first_unit: u32, per_row: u32, upper: mat4x4<f32>, lower: mat4x4<f32>) {
    var first = upper;
    var second = lower;
    let of_row = lane % TOGETHER;
    let place = lane / TOGETHER;
    let units = (params.rows + ROWS - 1u) / ROWS * per_row;
    let column = (first_unit + place) % per_row * 4u;
    let adds = place < ACROSS && first_unit + place < units;
    // Where the thread that has the first of 16 units finds their rows.
    let unit = first_unit + place * 16u;
    for (var r = 0u; r < ROWS; r += TOGETHER) {
        for (var i = 0u; i < TOGETHER; i++) {
            if (r < 4u) {
                of_parts[lane * TOGETHER + i] = first[r + i];
            } else {
                of_parts[lane * TOGETHER + i] = second[r + i - 4u];
            }
        }
        workgroupBarrier();
        var total = vec4<f32>();
        if (adds) {
            for (var p = 0u; p < SHARE; p++) {
                total += of_parts[(place * SHARE + p) * TOGETHER + of_row];
            }
        }
        workgroupBarrier();
        if (adds) {
            of_parts[of_row * ACROSS + place] = vec4<f32>(gated_of(column, total), 0.0, 0.0);
        }
        workgroupBarrier();
        let row = unit / per_row * ROWS + r + of_row;
        if (place < ACROSS / 16u && unit < units && row < params.rows) {
            put_group((row * per_row + unit % per_row) / 16u, eight_at(of_row * ACROSS + place * 16u));
        }
        workgroupBarrier();
    }
}
