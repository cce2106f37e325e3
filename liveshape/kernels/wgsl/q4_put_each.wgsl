fn put_four(row: u32, column: u32, products: vec4<f32>) {
    put(row, column, products.x);
    put(row, column + 1u, products.y);
    put(row, column + 2u, products.z);
    put(row, column + 3u, products.w);
}
