// The reduction over the threads of a unit, and its epilogue, where a unit has several rows: the partial sums of
// the UNIT_THREADS threads of a unit, four columns of a row, TOGETHER rows at a time.
#if EPILOGUE == gated_quantized
override WG: u32 = 256;

const TOGETHER: u32 = min(min(ROWS, 4u), COOPERATING); // no more than there are threads for
#else
override WG: u32 = 128;

const TOGETHER: u32 = ROWS;
#endif
const COOPERATING: u32 = min(UNIT_THREADS, WG); // a device may clamp the workgroup below UNIT_THREADS
const GROUP_UNITS: u32 = WG / COOPERATING; // units of a workgroup

var<workgroup> partial_totals: array<vec4<f32>, WG * TOGETHER>;

// A thread adds all partial sums of a row of a unit: these few reads cost less than a barrier for every halving.
fn total_of(unit: u32, row: u32) -> vec4<f32> {
    var total = vec4<f32>();
    for (var p = 0u; p < COOPERATING; p++) {
        total += partial_totals[(unit * COOPERATING + p) * TOGETHER + row];
    }
    return total;
}

#if EPILOGUE == gated_quantized
fn pair_at(place: u32) -> vec2<f32> {
    return partial_totals[place].xy;
}

// 16 units, of which a workgroup has a multiple, are 32 neighbours of a gated row, which are quantized.
fn store_rows(thread: u32, first_unit: u32, per_row: u32, first: u32) {
    let of_row = thread % TOGETHER;
    let place = thread / TOGETHER;
    let units = (params.rows + ROWS - 1u) / ROWS * per_row;
    let sums_here = place < GROUP_UNITS && first_unit + place < units;
    let unit = first_unit + place * 16u; // the first of those that this thread quantizes
    var total = vec4<f32>();
    if (sums_here) {
        total = total_of(place, of_row);
    }
    workgroupBarrier();
    if (sums_here) {
        let gated = gated_of((first_unit + place) % per_row * 4u, total);
        partial_totals[of_row * GROUP_UNITS + place] = vec4<f32>(gated, 0.0, 0.0);
    }
    workgroupBarrier();
    let row = unit / per_row * ROWS + first + of_row;
    if (place < GROUP_UNITS / 16u && unit < units && row < params.rows) {
        store_quantized((row * per_row + unit % per_row) / 16u, group_at(of_row * GROUP_UNITS + place * 16u));
    }
    workgroupBarrier();
}
#else
fn store_rows(thread: u32, first_unit: u32, per_row: u32, first: u32) {
    for (var i = thread; i < GROUP_UNITS * ROWS; i += WG) {
        let unit = first_unit + i / ROWS;
        store_four(unit / per_row * ROWS + i % ROWS, unit % per_row * 4u, total_of(i / ROWS, i % ROWS));
    }
}
#endif
