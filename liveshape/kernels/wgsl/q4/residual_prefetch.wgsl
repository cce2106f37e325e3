// The residual that the epilogue adds is prefetched while the sums of a unit are made.
#if EPILOGUE == residual
var<private> residual_ahead: vec4<f32>;

fn residual_of(row: u32, column: u32) -> f32 {
    return f32(residual[row * params.columns + min(column, params.columns - 1u)]);
}

fn prefetch_residual(row: u32, column: u32) {
    residual_ahead = vec4<f32>(
        residual_of(row, column), residual_of(row, column + 1u),
        residual_of(row, column + 2u), residual_of(row, column + 3u),
    );
}

fn store_prefetched(row: u32, column: u32, products: vec4<f32>) {
    store_with_residual(row, column, products.x, residual_ahead.x);
    store_with_residual(row, column + 1u, products.y, residual_ahead.y);
    store_with_residual(row, column + 2u, products.z, residual_ahead.z);
    store_with_residual(row, column + 3u, products.w, residual_ahead.w);
}
#else
fn prefetch_residual(row: u32, column: u32) {
}

fn store_prefetched(row: u32, column: u32, products: vec4<f32>) {
    store_four(row, column, products);
}
#endif
