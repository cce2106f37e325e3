// Combines the partial results of the splits of the context. COMBINE_THREADS threads share the splits of an element of
// the output; each reads several at once and rescales them as the maximum rises, and after a barrier they are combined.
// composable: an element of the result is stored once.
// unchecked: places in the workgroup's memory follow from constants, rows are held below the live ones.
// TOut: f32, f16
override WG: u32 = 256;
override ROWS: u32 = 1;
override COMBINE_THREADS: u32 = 1; // a power of two

@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> split_results: array<f32>;
#if CACHE == paged
@group(0) @binding(2) var<storage, read> lines: array<vec4<i32>>;
#endif

#include attention/params

const UNROLL: u32 = 8;
const ELEMENTS: u32 = WG / COMBINE_THREADS; // of a workgroup

var<workgroup> partial_maxima: array<f32, WG>;
var<workgroup> partial_sums: array<f32, WG>;
var<workgroup> partial_exp_sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, grid) * ELEMENTS + thread % ELEMENTS;
    let side = thread / ELEMENTS;
    let column = i % HEAD_SIZE;
    // Past the last row it is read again.
    let row_of_all = min(i / HEAD_SIZE, params.units * ROWS - 1u);
    let unit = unit_at(row_of_all / ROWS);
    let row = unit.block * ROWS + row_of_all % ROWS;
    let stride = ROWS * (HEAD_SIZE + 2u);
    let start = row_of_all / ROWS * params.splits * stride + row_of_all % ROWS * (HEAD_SIZE + 2u);
    var running_maximum = LOWEST;
    var sum = 0.0;
    var exp_sum = 0.0;
    for (var first = side; first < params.splits; first += UNROLL * COMBINE_THREADS) {
        var tops: array<f32, UNROLL>;
        var sums: array<f32, UNROLL>;
        var masses: array<f32, UNROLL>;
        // Past the last split it is read again.
        for (var s = 0u; s < UNROLL; s++) {
            let place = start + min(first + s * COMBINE_THREADS, params.splits - 1u) * stride;
            tops[s] = split_results[place + HEAD_SIZE];
            sums[s] = split_results[place + column];
            masses[s] = split_results[place + HEAD_SIZE + 1u];
        }
        var maximum = running_maximum;
        for (var s = 0u; s < UNROLL; s++) {
            maximum = max(maximum, tops[s]);
        }
        let correction = exp(running_maximum - maximum);
        running_maximum = maximum;
        sum *= correction;
        exp_sum *= correction;
        for (var s = 0u; s < UNROLL; s++) {
            if (first + s * COMBINE_THREADS < params.splits) {
                let weight = exp(tops[s] - running_maximum);
                sum = fma(weight, sums[s], sum);
                exp_sum = fma(weight, masses[s], exp_sum);
            }
        }
    }
    if (COMBINE_THREADS > 1u) {
        partial_maxima[thread] = running_maximum;
        partial_sums[thread] = sum;
        partial_exp_sums[thread] = exp_sum;
        workgroupBarrier();
        for (var s = thread % ELEMENTS; s < WG; s += ELEMENTS) {
            running_maximum = max(running_maximum, partial_maxima[s]);
        }
        sum = 0.0;
        exp_sum = 0.0;
        for (var s = thread % ELEMENTS; s < WG; s += ELEMENTS) {
            let weight = exp(partial_maxima[s] - running_maximum);
            sum = fma(weight, partial_sums[s], sum);
            exp_sum = fma(weight, partial_exp_sums[s], exp_sum);
        }
    }
#if CACHE == paged
    if (side == 0u && column < VALUE_SIZE && i / HEAD_SIZE < params.units * ROWS && row < unit.rows) {
#else
    if (side == 0u && column < VALUE_SIZE && i / HEAD_SIZE < params.units * ROWS && row < params.rows) {
#endif
        out[out_place(unit, row) + column] = TOut(averaged(vec4<f32>(sum), exp_sum).x);
    }
}
