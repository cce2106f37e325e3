// What a thread finds of one row of bytes before its RMS norm: the sums of four columns, and squares of the row, which tell
// the factor that the sums wait for.
override EPS: f32 = 0.0;

struct Total {
    sums: vec4<f32>,
    squares: f32,
}

fn combine(a: Total, b: Total) -> Total {
    return Total(a.sums + b.sums, a.squares + b.squares);
}

fn plus_group(total: Total, four: Four, even: vec4<u32>, odd: vec4<u32>, of_row: vec4<f32>) -> Total {
    return Total(plus_bytes(total.sums, four, even, odd, of_row), total.squares + of_row.w);
}

fn sums_of(total: Total) -> vec4<f32> {
    return total.sums * inverseSqrt(total.squares / f32(params.depth) + EPS);
}
