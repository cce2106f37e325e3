// The epilogue of four neighbouring columns of a product, as matmul/store.wgsl has that of one.
#include common/ahead
#if DEPTH == whole
#include common/clamped
#endif

struct Early {
    ahead: Ahead,
    row: vec4<f32>, // what a row was divided by, and columns
    columns: vec4<f32>,
    addend: vec4<f32>,
}

fn place_of(row: u32, column: u32) -> u32 {
    return (((split * params.batch + batch) * params.rows + row) * params.columns + column) / 4u;
}

fn early(row: u32, column: u32) -> Early {
    var added = vec4<f32>();
    if (ADDEND) {
        let place = batch * params.addend_batch_stride + row * params.addend_row_stride + column;
        added = vec4<f32>(addend[place / 4u]);
    }
    let place = place_of(row, column);
    return Early(ahead_of(place), vec4<f32>(factor_of(row)), factors[column_line(column) / 4u], added);
}

fn store(row: u32, column: u32, product: vec4<f32>, given: Early) {
    at_hand = given.ahead;
#if DEPTH == whole
    var value = product * params.alpha;
    if (ADDEND) {
        value += params.beta * given.addend;
    }
    let clamped_value = vec4<f32>(clamped(value.x), clamped(value.y), clamped(value.z), clamped(value.w));
    out[place_of(row, column)] = vec4<TOut>(clamped_value);
#else
    out[place_of(row, column)] = product;
#endif
}
