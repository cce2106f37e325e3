// A place of the kernel over the one channel of a group: x is [N, C, H, W], the weight [kernel, C], its rows padded.
fn x_byte(place: u32) -> i32 {
    return signed_byte(x[place / 4u], place % 4u);
}

fn weight_byte(place: u32) -> i32 {
    return signed_byte(weight[place / 4u], place % 4u);
}

fn add_tap(tap: u32, met: vec4<i32>) {
    let size = params.size.x * params.size.y;
    let places = (image * params.channels + channel) * size + vec4<u32>(max(met, vec4<i32>()));
    let columns = tap * params.pitch + channel;
    let found = vec4<i32>(x_byte(places.x), x_byte(places.y), x_byte(places.z), x_byte(places.w));
    let values = select(found - vec4<i32>(params.x_zero), vec4<i32>(), met < vec4<i32>());
    totals[0] += values
        * vec4<i32>(weight_byte(columns.x), weight_byte(columns.y), weight_byte(columns.z), weight_byte(columns.w));
}

fn total_of(sum: i32, channel: u32) -> i32 {
    return sum;
}
