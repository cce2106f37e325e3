// out[batch, i, j] = the p-norm of a[batch, i, :] - b[batch, j, :]; of PAIRS only those with i < j, one after the
// other.
// T: f32, f16
override WG: u32 = 64;
override NORM: u32 = OTHER;
override PAIRS: bool = false;

const COUNT = 0u; // of the places where they differ
const SUM = 1u;
const EUCLID = 2u;
const MAXIMUM = 3u;
const OTHER = 4u;

struct Params {
    count: u32,
    rows: u32, // of a
    columns: u32, // rows of b
    width: u32,
    p: f32,
    rank: u32,
    source_start: i32,
    target_start: i32,
    sizes: array<vec4<u32>, 2>, // of the batch
    source_strides: array<vec4<i32>, 2>, // of a
    target_strides: array<vec4<i32>, 2>, // of b
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> a: array<T>;
@group(0) @binding(2) var<storage, read> b: array<T>;

#include movement/walk_both
#include common/float_keys

fn each(i: u32) {
    let column = i % params.columns;
    let row = (i / params.columns) % params.rows;
    var place = i;
    if (PAIRS) {
        if (column <= row) {
            return;
        }
        place = row * params.columns - row * (row + 1u) / 2u + column - row - 1u;
    }
    let starts = walk_both(i / (params.columns * params.rows));
    let left = u32(starts.x) + row * params.width;
    let right = u32(starts.y) + column * params.width;
    var total = 0.0;
    for (var k = 0u; k < params.width; k++) {
        let difference = abs(f32(a[left + k]) - f32(b[right + k]));
        if (NORM == COUNT) {
            total += select(1.0, 0.0, difference == 0.0);
        } else if (NORM == SUM) {
            total += difference;
        } else if (NORM == EUCLID) {
            total += difference * difference;
        } else if (NORM == MAXIMUM) {
            total = select(total, difference, key_of(difference) > key_of(total));
        } else if (difference > 0.0 || key_of(difference) == NAN_KEY) {
            total += pow(difference, params.p);
        }
    }
    if (NORM == EUCLID) {
        total = sqrt(total);
    } else if (NORM == OTHER && total > 0.0) {
        total = pow(total, 1.0 / params.p);
    }
    out[place] = T(total);
}

#include common/each
