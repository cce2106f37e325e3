// The products of three 4-bit linear layers of one input: their columns lie behind each other in the weight.
override FIRST: u32 = 0; // columns of the first layer
override SECOND: u32 = 0; // and of the second

@group(0) @binding(4) var<storage, read_write> out_1: array<TOut>;
@group(0) @binding(5) var<storage, read_write> out_2: array<TOut>;
@group(0) @binding(6) var<storage, read_write> out_3: array<TOut>;
@group(0) @binding(7) var<uniform> params: Params;

fn put(row: u32, column: u32, product: f32) {
    if (row >= params.rows || column >= params.columns) {
        return;
    }
    let value = TOut(with_bias(column, product));
    if (column < FIRST) {
        out_1[row * FIRST + column] = value;
    } else if (column < FIRST + SECOND) {
        out_2[row * SECOND + column - FIRST] = value;
    } else {
        out_3[row * (params.columns - FIRST - SECOND) + column - FIRST - SECOND] = value;
    }
}

// include q4_put_each
