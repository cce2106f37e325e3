// The epilogue of four neighbouring columns of a product, as matmul/store.wgsl has that of one.
#include common/ahead
#if DEPTH == whole
#include common/clamped
#endif

override ADDEND_ROWS: bool = false; // whether each row has an addend of its own

struct Columns {
    factors: vec4<f32>, // what they were divided by
    addend: vec4<f32>,
}

struct Early {
    ahead: Ahead,
    factor: f32, // what a row was divided by
    addend: vec4<f32>,
}

fn place_of(row: u32, column: u32) -> u32 {
    return (((split * params.batch + batch) * params.rows + row) * params.columns + column) / 4u;
}

fn four_addends(row: u32, column: u32) -> vec4<f32> {
    return vec4<f32>(addend[(batch * params.addend_batch_stride + row * params.addend_row_stride + column) / 4u]);
}

fn columns_of(column: u32) -> Columns {
    var added = vec4<f32>();
    if (ADDEND && !ADDEND_ROWS) {
        added = four_addends(0u, column);
    }
    return Columns(factors[column_line(column) / 4u], added);
}

fn early(row: u32, column: u32) -> Early {
    var added = vec4<f32>();
    if (ADDEND && ADDEND_ROWS) {
        added = four_addends(row, column);
    }
    return Early(ahead_of(place_of(row, column)), factor_of(row), added);
}

fn store(row: u32, column: u32, product: vec4<f32>, given: Early, columns: Columns) {
    at_hand = given.ahead;
#if DEPTH == whole
    var value = product * params.alpha;
    if (ADDEND) {
        value += params.beta * select(columns.addend, given.addend, ADDEND_ROWS);
    }
    let clamped_value = vec4<f32>(clamped(value.x), clamped(value.y), clamped(value.z), clamped(value.w));
    out[place_of(row, column)] = vec4<TOut>(clamped_value);
#else
    out[place_of(row, column)] = product;
#endif
}
