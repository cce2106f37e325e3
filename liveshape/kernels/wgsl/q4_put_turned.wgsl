// Queries, keys and values of one input, their columns behind each other in the weight: queries turn, keys turn on their
// way to their cache, values go to theirs. The columns of a pair that turns together are neighbours in the weight.
// TAngle: f32, f16
// TKey: f32, f16
override NEIGHBOURS: bool = true; // whether they are neighbours in the head, too; else half a head apart
override SIZE: u32 = 2; // of a head
override FIRST: u32 = 0; // columns of the queries
override SECOND: u32 = 0; // of the keys, and of the values

@group(0) @binding(4) var<storage, read> cosine: array<TAngle>;
@group(0) @binding(5) var<storage, read> sine: array<TAngle>;
@group(0) @binding(6) var<storage, read_write> query_out: array<TOut>;
@group(0) @binding(7) var<storage, read_write> key_out: array<TKey>;
@group(0) @binding(8) var<storage, read_write> value_out: array<TKey>;
@group(0) @binding(9) var<uniform> params: Params;

// include turned

fn put_pair(row: u32, column: u32, products: vec2<f32>) {
    if (row >= params.rows || column >= params.columns) {
        return;
    }
    let pair = vec2<f32>(with_bias(column, products.x), with_bias(column + 1u, products.y));
    if (column >= FIRST + SECOND) {
        let place = params.cache_start + row * SECOND + column - FIRST - SECOND;
        value_out[place] = TKey(pair.x);
        value_out[place + 1u] = TKey(pair.y);
        return;
    }
    let own = select(column, column - FIRST, column >= FIRST);
    let i = own % SIZE / 2u;
    let half = select(SIZE / 2u, 0u, NEIGHBOURS);
    let angle = (params.first_row + row) * (SIZE / 2u + half) + i;
    let result = turned(pair, angle, angle + half);
    let place = own - own % SIZE + select(i, 2u * i, NEIGHBOURS);
    let other = place + select(SIZE / 2u, 1u, NEIGHBOURS);
    if (column >= FIRST) {
        let start = params.cache_start + row * SECOND;
        key_out[start + place] = TKey(result.x);
        key_out[start + other] = TKey(result.y);
    } else {
        query_out[row * FIRST + place] = TOut(result.x);
        query_out[row * FIRST + other] = TOut(result.y);
    }
}

fn put_four(row: u32, column: u32, products: vec4<f32>) {
    put_pair(row, column, products.xy);
    put_pair(row, column + 2u, products.zw);
}
