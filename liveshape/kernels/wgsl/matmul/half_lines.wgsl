// A factor of a product as halves for matrix units: rows of a left one and columns of a right one are lines of the depth,
// in vectors of eight whose last is filled with zeros. Each is divided by a power of two that keeps its largest number in the range of halves;
// numbers that are halves stay as they are (not SCALED).
//
// A workgroup takes several lines that lie along the depth, LINE_THREADS threads each, or columns of a factor [K, N],
// four to a thread and LINE_THREADS threads along the depth.
// scratch halves, factors
// unchecked: lines, columns and depth are those of the tensors, which planning checked.
// T: f32, f16
override WG: u32 = 256;
override LINE_THREADS: u32 = 32;
override LINE_EIGHTS: u32 = 4; // vectors of eight of a line that a thread keeps, so that it reads them once
override TRANSPOSED: bool = true; // whether lines lie along the depth: a left factor, or a right one [N, K]
override SCALED: bool = true;
override ACROSS: bool = false; // whether vectors of all lines of a factor at one place of the depth are neighbours
override SPLIT: bool = false; // whether a number is the sum of two halves: see quantization/split_halves.wgsl

const UNITS: u32 = WG / LINE_THREADS; // lines, or fours of columns, of a workgroup

struct Params {
    lines: u32, // columns of all factors of a batch
    columns: u32, // of one of them
    depth: u32,
    apart: u32, // lines from one of a batch to the next, as they are written
    start: u32, // of the factors, and elements between these and between their rows
    batch: u32,
    row: u32,
}
@group(0) @binding(0) var<storage, read_write> halves: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> factors: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<V>;

#include matmul/right
#include quantization/half_exponent
#include quantization/split_halves
#include quantization/largest

// Where a line is written.
fn written(line: u32) -> u32 {
    return line / params.columns * params.apart + line % params.columns;
}

// Eights of a line that are written: where numbers are split, both parts of two eights are neighbours.
fn line_eights() -> u32 {
    if (SPLIT) {
        return (params.depth + 15u) / 16u * 2u;
    }
    return (params.depth + 7u) / 8u;
}

fn put_eight(line: u32, eight: u32, first: vec4<f32>, second: vec4<f32>, inverse: f32) {
    if (SPLIT) {
        let place = line * line_eights() * 2u + eight / 2u * 4u + eight % 2u;
        let one = split_four(first, inverse);
        let other = split_four(second, inverse);
        halves[place] = vec4<u32>(one.high, other.high);
        halves[place + 2u] = vec4<u32>(one.low, other.low);
    } else if (ACROSS) {
        let own = line % params.columns;
        halves[(line - own) * line_eights() + eight * params.columns + own] =
            eight_halves(first * inverse, second * inverse);
    } else {
        halves[line * line_eights() + eight] = eight_halves(first * inverse, second * inverse);
    }
}

// Four neighbours of a line along the depth; those behind its end are zeros.
fn four_of_line(line: u32, k: u32) -> vec4<f32> {
    let own = line / params.columns;
    let start = params.start + own * params.batch + (line - own * params.columns) * params.row;
    return weight_within(start + k, max(params.depth, k) - k);
}

fn half_line(thread: u32, index: u32) {
    let line = min(index, params.lines - 1u);
    let own = thread % LINE_THREADS;
    var scale = HalfScale(1.0, 1.0);
    var most = vec4<f32>();
#unroll i < LINE_EIGHTS
    let first_$i = four_of_line(line, (own + $iu * LINE_THREADS) * 8u);
    let second_$i = four_of_line(line, (own + $iu * LINE_THREADS) * 8u + 4u);
    most = max(most, max(sizes_of(first_$i), sizes_of(second_$i)));
#endunroll
    if (SCALED) {
        for (var k = LINE_EIGHTS * LINE_THREADS * 8u + own * 4u; k < params.depth; k += LINE_THREADS * 4u) {
            most = max(most, sizes_of(four_of_line(line, k)));
        }
        scale = half_scale(largest_of_four(largest(thread, own, LINE_THREADS, 1u, most)));
    }
    if (index >= params.lines) {
        return;
    }
    if (own == 0u) {
        factors[written(line)] = scale.factor;
    }
    let eights = line_eights();
#unroll i < LINE_EIGHTS
    if (own + $iu * LINE_THREADS < eights) {
        put_eight(written(line), own + $iu * LINE_THREADS, first_$i, second_$i, scale.inverse);
    }
#endunroll
    for (var i = LINE_EIGHTS * LINE_THREADS + own; i < eights; i += LINE_THREADS) {
        put_eight(written(line), i, four_of_line(line, i * 8u), four_of_line(line, i * 8u + 4u), scale.inverse);
    }
}
// Four columns of a right factor [K, N] at a place of the depth; those that do not exist are zeros.
fn four_columns(start: u32, column: u32, k: u32) -> vec4<f32> {
    if (k >= params.depth) {
        return vec4<f32>();
    }
    return weight_within(start + k * params.row + column, params.columns - column);
}

fn half_columns(thread: u32, index: u32) {
    let per_factor = (params.columns + 3u) / 4u;
    let fours = params.lines / params.columns * per_factor;
    let four = min(index, fours - 1u);
    let own = thread / UNITS;
    let column = four % per_factor * 4u;
    let start = params.start + four / per_factor * params.batch;
    var scales = array<HalfScale, 4>(
        HalfScale(1.0, 1.0), HalfScale(1.0, 1.0), HalfScale(1.0, 1.0), HalfScale(1.0, 1.0),
    );
    if (SCALED) {
        var most = vec4<f32>();
        for (var k = own; k < params.depth; k += LINE_THREADS) {
            most = max(most, sizes_of(four_columns(start, column, k)));
        }
        let each = largest(thread, own, LINE_THREADS, UNITS, most);
        scales[0] = half_scale(each.x);
        scales[1] = half_scale(each.y);
        scales[2] = half_scale(each.z);
        scales[3] = half_scale(each.w);
    }
    if (index >= fours) {
        return;
    }
    let line = four / per_factor * params.apart + column;
    let eights = line_eights();
    let existing = min(4u, params.columns - column);
    if (own == 0u) {
        for (var i = 0u; i < existing; i++) {
            factors[line + i] = scales[i].factor;
        }
    }
    for (var eight = own; eight < eights; eight += LINE_THREADS) {
        let k = eight * 8u;
        let low = transpose(mat4x4<f32>(
            four_columns(start, column, k), four_columns(start, column, k + 1u),
            four_columns(start, column, k + 2u), four_columns(start, column, k + 3u),
        ));
        let high = transpose(mat4x4<f32>(
            four_columns(start, column, k + 4u), four_columns(start, column, k + 5u),
            four_columns(start, column, k + 6u), four_columns(start, column, k + 7u),
        ));
        for (var i = 0u; i < existing; i++) {
            put_eight(line + i, eight, low[i], high[i], scales[i].inverse);
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let first = group_index(group, grid) * UNITS;
    if (TRANSPOSED) {
        half_line(thread, first + thread / LINE_THREADS);
    } else {
        half_columns(thread, first + thread % UNITS);
    }
}
