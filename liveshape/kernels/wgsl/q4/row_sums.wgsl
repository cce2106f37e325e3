// The reduction over the threads of a unit, and its epilogue, where a unit has several rows.
#if EPILOGUE == gated_quantized
// Sums the partial sums of the UNIT_THREADS threads of a unit, four columns of ROWS rows; 16 units are 32 neighbours of
// a gated row, which are quantized. Few rows at a time: scratch for the partial sums must fit in workgroup memory.
override WG: u32 = 256;

const COOPERATING: u32 = min(UNIT_THREADS, WG);
const GROUP_UNITS: u32 = WG / COOPERATING; // units of a workgroup, a multiple of 16
const HALF: u32 = min(ROWS, 4u);
const TOGETHER: u32 = min(HALF, COOPERATING); // rows at a time, no more than there are threads for

var<workgroup> partial_totals: array<vec4<f32>, WG * TOGETHER>;

fn pair_at(place: u32) -> vec2<f32> {
    return partial_totals[place].xy;
}

// Up to four rows of every unit, from the first of its rows or from the fifth on.
fn store_half(thread: u32, first_unit: u32, per_row: u32, first: u32, half: mat4x4<f32>) {
    var sums = half;
    let of_row = thread % TOGETHER;
    let place = thread / TOGETHER;
    let units = (params.rows + ROWS - 1u) / ROWS * per_row;
    let sums_here = place < GROUP_UNITS && first_unit + place < units;
    let unit = first_unit + place * 16u; // the first of those that this thread quantizes
    for (var r = 0u; r < HALF; r += TOGETHER) {
        for (var i = 0u; i < TOGETHER; i++) {
            partial_totals[thread * TOGETHER + i] = sums[r + i];
        }
        workgroupBarrier();
        var total = vec4<f32>();
        if (sums_here) {
            for (var p = 0u; p < COOPERATING; p++) {
                total += partial_totals[(place * COOPERATING + p) * TOGETHER + of_row];
            }
        }
        workgroupBarrier();
        if (sums_here) {
            let gated = gated_of((first_unit + place) % per_row * 4u, total);
            partial_totals[of_row * GROUP_UNITS + place] = vec4<f32>(gated, 0.0, 0.0);
        }
        workgroupBarrier();
        let row = unit / per_row * ROWS + first + r + of_row;
        if (place < GROUP_UNITS / 16u && unit < units && row < params.rows) {
            store_quantized((row * per_row + unit % per_row) / 16u, group_at(of_row * GROUP_UNITS + place * 16u));
        }
        workgroupBarrier();
    }
}

fn store_sums(thread: u32, first_unit: u32, per_row: u32, upper: mat4x4<f32>, lower: mat4x4<f32>) {
    store_half(thread, first_unit, per_row, 0u, upper);
    if (ROWS > 4u) {
        store_half(thread, first_unit, per_row, 4u, lower);
    }
}
#else
// Sums the partial sums of the UNIT_THREADS threads of a unit, four columns of ROWS rows.
override WG: u32 = 128;

const COOPERATING: u32 = min(UNIT_THREADS, WG); // a device may clamp the workgroup below UNIT_THREADS
const GROUP_UNITS: u32 = WG / COOPERATING; // units of a workgroup

var<workgroup> partial_totals: array<vec4<f32>, WG * ROWS>;

fn store_sums(thread: u32, first_unit: u32, per_row: u32, upper: mat4x4<f32>, lower: mat4x4<f32>) {
    var first = upper;
    var second = lower;
    for (var r = 0u; r < min(ROWS, 4u); r++) {
        partial_totals[thread * ROWS + r] = first[r];
    }
    for (var r = 4u; r < ROWS; r++) {
        partial_totals[thread * ROWS + r] = second[r - 4u];
    }
    workgroupBarrier();
    // A thread adds all partial sums of a row of a unit: these few reads cost less than a barrier for every halving.
    for (var i = thread; i < GROUP_UNITS * ROWS; i += WG) {
        var total = vec4<f32>();
        for (var p = 0u; p < COOPERATING; p++) {
            total += partial_totals[(i / ROWS * COOPERATING + p) * ROWS + i % ROWS];
        }
        let unit = first_unit + i / ROWS;
        store_four(unit / per_row * ROWS + i % ROWS, unit % per_row * 4u, total);
    }
}
#endif
