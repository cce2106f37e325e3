#if EPILOGUE == gated_quantized
// What the PARTS threads of a unit, four columns of ROWS rows, found: added up, and made bytes where 16 units are 32
// neighbours of a gated row. Few rows at a time, since more would not fit into the memory of a workgroup.
override WG: u32 = 256;

const SHARE: u32 = min(PARTS, WG);
const ACROSS: u32 = WG / SHARE; // units of a workgroup, a multiple of 16
const HALF: u32 = min(ROWS, 4u);
const TOGETHER: u32 = min(HALF, SHARE); // rows at a time, no more than there are threads for

var<workgroup> of_parts: array<vec4<f32>, WG * TOGETHER>;

fn pair_at(place: u32) -> vec2<f32> {
    return of_parts[place].xy;
}

// Up to four rows of every unit, from the first of its rows or from the fifth on.
fn put_half(lane: u32, first_unit: u32, per_row: u32, first: u32, half: mat4x4<f32>) {
    var sums = half;
    let of_row = lane % TOGETHER;
    let place = lane / TOGETHER;
    let units = (params.rows + ROWS - 1u) / ROWS * per_row;
    let adds = place < ACROSS && first_unit + place < units;
    let unit = first_unit + place * 16u; // the first of those whose bytes this thread makes
    for (var r = 0u; r < HALF; r += TOGETHER) {
        for (var i = 0u; i < TOGETHER; i++) {
            of_parts[lane * TOGETHER + i] = sums[r + i];
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
            let gated = gated_of((first_unit + place) % per_row * 4u, total);
            of_parts[of_row * ACROSS + place] = vec4<f32>(gated, 0.0, 0.0);
        }
        workgroupBarrier();
        let row = unit / per_row * ROWS + first + r + of_row;
        if (place < ACROSS / 16u && unit < units && row < params.rows) {
            put_group((row * per_row + unit % per_row) / 16u, eight_at(of_row * ACROSS + place * 16u));
        }
        workgroupBarrier();
    }
}

fn put_sums(lane: u32, first_unit: u32, per_row: u32, upper: mat4x4<f32>, lower: mat4x4<f32>) {
    put_half(lane, first_unit, per_row, 0u, upper);
    if (ROWS > 4u) {
        put_half(lane, first_unit, per_row, 4u, lower);
    }
}
#else
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
#endif
