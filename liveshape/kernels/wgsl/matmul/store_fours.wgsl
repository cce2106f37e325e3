// The epilogue of four neighbouring columns of a product, as matmul/store.wgsl has that of one.
#include common/clamped

fn store(batch: u32, row: u32, column: u32, product: vec4<f32>) {
    var value = product * params.alpha;
    if (ADDEND) {
        let place = batch * params.addend_batch_stride + row * params.addend_row_stride + column;
        value += params.beta * vec4<f32>(addend[place / 4u]);
    }
    let clamped_value = vec4<f32>(clamped(value.x), clamped(value.y), clamped(value.z), clamped(value.w));
    out[((batch * params.rows + row) * params.columns + column) / 4u] = vec4<TOut>(clamped_value);
}
