// What a thread finds of one row of bytes: the sums of four columns.
alias Total = vec4<f32>;

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

fn plus_group(total: Total, four: Four, even: vec4<u32>, odd: vec4<u32>, of_row: vec4<f32>) -> Total {
    return plus_bytes(total, four, even, odd, of_row);
}

fn sums_of(total: Total) -> vec4<f32> {
    return total;
}
