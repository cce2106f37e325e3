fn put_block(row: u32, column: u32, block: mat4x4<f32>) {
    put_four(row, column, block[0]);
    put_four(row + 1u, column, block[1]);
    put_four(row + 2u, column, block[2]);
    put_four(row + 3u, column, block[3]);
}
