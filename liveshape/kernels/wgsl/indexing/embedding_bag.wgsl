// One thing per bag of rows of a table: their sum, mean or greatest, weighted, in each column; or where the greatest is
// from, how many rows there are, or in which bag an index lies. An index outside of the table gives `invalid`.
// T: f32, f16
override WG: u32 = 64;
override OP: u32 = SUM;
override WEIGHTS: bool = false;
override INCLUDE_LAST_OFFSET: bool = false; // where sums stop; sizes and maxima go on to the last index

const SUM = 0u;
const MEAN = 1u;
const MAXIMUM = 2u;
const ORIGIN = 3u;
const SIZE = 4u;
const BAG = 5u;

struct Params {
    count: u32,
    bags: u32,
    indices: u32,
    rows: i32,
    width: u32,
    padding: i32,
    invalid: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> table: array<T>;
@group(0) @binding(2) var<storage, read> indices: array<i32>;
@group(0) @binding(3) var<storage, read> offsets: array<i32>;
@group(0) @binding(4) var<storage, read> weights: array<TWeight>;

#include common/float_keys

// Where a bag begins, or the last one ends.
fn border(bag: u32) -> u32 {
    if (bag >= params.bags) {
        return params.indices;
    }
    return min(u32(max(offsets[bag], 0)), params.indices);
}

fn each(i: u32) {
    if (OP == BAG) {
        // The last bag that begins at or before the index: bags in front of it may be empty.
        var low = 0u;
        var high = params.bags;
        while (low < high) {
            let middle = (low + high) / 2u;
            if (border(middle) <= i) {
                low = middle + 1u;
            } else {
                high = middle;
            }
        }
        out[i] = TOut(max(low, 1u) - 1u);
        return;
    }
    let width = select(params.width, 1u, OP == SIZE);
    let bag = i / width;
    let column = i % width;
    var stop = params.indices;
    if (INCLUDE_LAST_OFFSET && (OP == SUM || OP == MEAN)) {
        stop = u32(max(offsets[bag + 1u], 0));
    }
    var total = 0.0;
    var rows = 0u;
    var origin = 0;
    for (var place = border(bag); place < border(bag + 1u); place++) {
        let row = indices[place];
        if (row == params.padding) {
            continue;
        }
        rows++;
        if (OP == SIZE || place >= stop) {
            continue;
        }
        var value = params.invalid;
        if (row >= 0 && row < params.rows) {
            value = f32(table[u32(row) * params.width + column]);
        }
        if (WEIGHTS) {
            value *= f32(weights[place]);
        }
        if (OP == SUM || OP == MEAN) {
            total += value;
        } else if (rows == 1u || key_of(value) > key_of(total)) {
            total = value;
            origin = row;
        }
    }
    if (OP == MEAN) {
        total /= f32(max(rows, 1u));
    }
    if (OP == ORIGIN) {
        out[i] = TOut(origin);
    } else if (OP == SIZE) {
        out[i] = TOut(rows);
    } else {
        out[i] = TOut(total);
    }
}

#include common/each
