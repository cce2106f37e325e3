// out = where each value belongs in a sorted row: how many of its elements are below, or not above where RIGHT says so.
// What is not a number belongs to the end, and other values behind what is none in a row.
override WG: u32 = 64;
override RIGHT: bool = false;
override INTEGER: bool = false; // whole numbers are compared in i32, all others in f32

struct Params {
    count: u32,
    length: u32,
    per_row: u32, // values that look in one row
}
@group(0) @binding(0) var<storage, read_write> out: array<i32>;
@group(0) @binding(1) var<storage, read> rows: array<TRow>;
@group(0) @binding(2) var<storage, read> x: array<TIn>;

#include elementwise/special_functions

// Whether the value lies behind an element of a row.
fn behind(place: u32, i: u32) -> bool {
    if (INTEGER) {
        let element = i32(rows[place]);
        let value = i32(x[i]);
        return (element < value) || (RIGHT && element == value);
    }
    let element = f32(rows[place]);
    let value = f32(x[i]);
    return (element < value) || (RIGHT && element == value) || any(is_nan(vec4<f32>(element, value, 0.0, 0.0)));
}

fn each(i: u32) {
    let start = (i / params.per_row) * params.length;
    var low = 0u;
    var high = params.length;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (behind(start + middle, i)) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    out[i] = i32(low);
}

#include common/each_in_runs
