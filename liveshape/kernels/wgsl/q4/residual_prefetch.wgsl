// The residual that the epilogue adds is prefetched while the sums of a unit are made.
#if EPILOGUE == added
var<private> expected: vec4<f32>;

fn added_to(row: u32, column: u32) -> f32 {
    return f32(residual[row * params.columns + min(column, params.columns - 1u)]);
}

fn expect_four(row: u32, column: u32) {
    expected = vec4<f32>(
        added_to(row, column), added_to(row, column + 1u),
        added_to(row, column + 2u), added_to(row, column + 3u),
    );
}

fn put_expected(row: u32, column: u32, products: vec4<f32>) {
    put_onto(row, column, products.x, expected.x);
    put_onto(row, column + 1u, products.y, expected.y);
    put_onto(row, column + 2u, products.z, expected.z);
    put_onto(row, column + 3u, products.w, expected.w);
}
#else
fn expect_four(row: u32, column: u32) {
}

fn put_expected(row: u32, column: u32, products: vec4<f32>) {
    put_four(row, column, products);
}
#endif
