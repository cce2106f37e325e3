// Softmax or its LOG along rows of neighbours, stable and in f32, for a device with few threads, whose shuffles are cheap
// and whose barriers are not: a workgroup of one subgroup has some rows, one after the other, and reads each three times.
// composable x: it may be read for its statistics, and once more.
// composable: each vector is stored once.
#choice WIDTH: four, one
// TIn: f32, f16
// TOut: f32, f16
override WG: u32 = 8; // the size of a subgroup
override LOG: bool = false;

struct Params {
    rows: u32,
    length: u32, // in vectors
    group_rows: u32,
}
#if WIDTH == four
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<TIn>>;
alias Result = vec4<TOut>;
alias Row = vec4<f32>;

fn sum_of(row: Row) -> f32 {
    return (row.x + row.y) + (row.z + row.w);
}

fn largest_of(row: Row) -> f32 {
    return max(max(row.x, row.y), max(row.z, row.w));
}
#else
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> x: array<TIn>;
alias Result = TOut;
alias Row = f32;

fn sum_of(row: Row) -> f32 {
    return row;
}

fn largest_of(row: Row) -> f32 {
    return row;
}
#endif

#include reduction/block

const LOWEST: f32 = -3.4028234e38; // not -inf: the difference of two of them would be NaN

fn each_group(group: u32, lane: u32) {
    let first_row = group * params.group_rows;
    let last_row = min(first_row + params.group_rows, params.rows);
    for (var row = first_row; row < last_row; row++) {
        let start = row * params.length;
        let end = start + params.length;
        var maxima = Row(LOWEST);
        for (var i = start + lane; i < end; i += WG) {
            maxima = max(maxima, Row(x[i]));
        }
        var maximum = largest_of(maxima);
        for (var step = 1u; step < WG; step *= 2u) {
            maximum = max(maximum, subgroupShuffleXor(maximum, step));
        }
        var sums = Row(0.0);
        for (var i = start + lane; i < end;) {
            let block_end = min(i + BLOCK * WG, end);
            var block = Row(0.0);
            for (; i < block_end; i += WG) {
                block += exp(Row(x[i]) - maximum);
            }
            sums += block;
        }
        var total = sum_of(sums);
        for (var step = 1u; step < WG; step *= 2u) {
            total += subgroupShuffleXor(total, step);
        }
        let log_total = log(total);
        for (var i = start + lane; i < end; i += WG) {
            let shifted = Row(x[i]) - maximum;
            if (LOG) {
                out[i] = Result(shifted - log_total);
            } else {
                out[i] = Result(exp(shifted) / total);
            }
        }
    }
}

#include common/each_group
