// What a tap of the kernel of an 8-bit convolution adds to the sums.
#choice CHANNELWISE: dense, depthwise
#if CHANNELWISE == depthwise
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
#else
// A place of the kernel over all channels of a group: x has them innermost, [N, H, W, C], and so has the weight,
// [out channels, kernel, channels of a group], its rows padded.
#include int8/weight_words
#include int8/x_words

fn add_tap(tap: u32, met: vec4<i32>) {
    let outside = (bitcast<u32>(params.x_zero) & 0xffu) * 0x01010101u;
    let pixels = params.size.x * params.size.y;
    let group = channel / params.group_out_channels * params.group_channels;
    let starts = (image * pixels + vec4<u32>(max(met, vec4<i32>()))) * params.channels + group;
    for (var i = 0u; i < params.group_channels; i += 4u) {
        let left = params.group_channels - i;
        let at = starts + vec4<u32>(i);
        let found = vec4<u32>(x_word(at.x, left), x_word(at.y, left), x_word(at.z, left), x_word(at.w, left));
        let words = select(found, vec4<u32>(outside), met < vec4<i32>());
        let column = tap * params.group_channels + i;
        if (CHANNELS == 1u) {
            for (var k = 0u; k < 4u; k++) {
                totals[0][k] += dot4I8Packed(words[k], weight_word(channel[k] * params.pitch + column, left));
            }
        } else {
            for (var c = 0u; c < CHANNELS; c++) {
                let row = min(channel.x + c, params.out_channels - 1u);
                let other = weight_word(row * params.pitch + column, left);
                totals[c] += vec4<i32>(
                    dot4I8Packed(words.x, other),
                    dot4I8Packed(words.y, other),
                    dot4I8Packed(words.z, other),
                    dot4I8Packed(words.w, other),
                );
            }
        }
    }
}

fn total_of(sum: i32, channel: u32) -> i32 {
    return sum - params.x_zero * sums[channel];
}
#endif
