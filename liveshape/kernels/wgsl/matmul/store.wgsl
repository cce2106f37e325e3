// The epilogue of a product: what is added to it, and a clamp.
#include common/clamped

fn store(batch: u32, row: u32, column: u32, product: f32) {
    if (row >= params.rows || column >= params.columns) {
        return;
    }
    var value = product * params.alpha;
    if (ADDEND) {
        let place = batch * params.addend_batch_stride + row * params.addend_row_stride
            + column * params.addend_column_stride;
        value += params.beta * f32(addend[place]);
    }
    out[(batch * params.rows + row) * params.columns + column] = TOut(clamped(value));
}
