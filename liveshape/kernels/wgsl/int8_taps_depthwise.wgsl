// A place of the kernel over the one channel of a group: x is [N, C, H, W], the weight [kernel, C], its rows padded.
fn add_tap(tap: u32, met: vec4<i32>) {
    let starts = (image * params.channels + channel) * (params.size.x * params.size.y);
    for (var k = 0u; k < 4u; k++) {
        if (met[k] >= 0) {
            let place = starts[k] + u32(met[k]);
            let column = tap * params.pitch + channel[k];
            let value = signed_byte(x[place / 4u], place % 4u) - params.x_zero;
            totals[0][k] += value * signed_byte(weight[column / 4u], column % 4u);
        }
    }
}

fn total_of(sum: i32, channel: u32) -> i32 {
    return sum;
}
