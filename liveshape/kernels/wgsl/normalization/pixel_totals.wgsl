// Sums of groups of channels, and of their squares, over some pixels of an image with its channels last, by a workgroup that
// has whole groups of a few vectors of eight channels, a `band`. Numbers are taken less the first of their group in the
// image, so that squares of what is far from zero lose no digits.
override AT_ONCE: u32 = 4; // pixels of a thread whose loads are on their way together

struct Eight {
    low: vec4<f32>,
    high: vec4<f32>,
}

var<workgroup> totals: array<vec4<f32>, 2 * WG>; // of every thread: four channels, then four more

fn floats(words: vec4<u32>) -> Eight {
    let low = vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
    return Eight(low, vec4<f32>(unpack2x16float(words.z), unpack2x16float(words.w)));
}

fn at_pixel(image: u32, pixel: u32, eight: u32) -> u32 {
    return (image * params.pixels + pixel) * params.eights + eight;
}

// The first number of the group of a channel.
fn first_of(image: u32, channel: u32) -> f32 {
    let place = channel / params.group * params.group;
    let pair = unpack2x16float(x[at_pixel(image, 0u, place / 8u)][place % 8u / 2u]);
    return pair[place % 2u];
}

fn firsts(image: u32, eight: u32) -> Eight {
    var first: Eight;
    for (var k = 0u; k < 4u; k++) {
        first.low[k] = first_of(image, eight * 8u + k);
        first.high[k] = first_of(image, eight * 8u + 4u + k);
    }
    return first;
}

// How far apart lines are that meet first: the power of two below their number.
fn pairs_of(lines: u32) -> u32 {
    return 1u << (31u - countLeadingZeros(max(lines, 2u) - 1u));
}

// The sum of the group `thread` of the band, of what all threads have of their channels: lines meet in pairs, and up to
// four threads share the channels of a group.
fn total_of_group(thread: u32, inside: u32, mine: Eight) -> f32 {
    let lines = WG / params.band;
    let line = thread / params.band;
    totals[thread] = mine.low;
    totals[WG + thread] = mine.high;
    for (var half = pairs_of(lines); half > 0u; half /= 2u) {
        workgroupBarrier();
        if (line < half && line + half < lines) {
            totals[thread] += totals[thread + half * params.band];
            totals[WG + thread] += totals[WG + thread + half * params.band];
        }
    }
    workgroupBarrier();
    let shares = min(4u, WG / inside);
    let group = thread / shares;
    var sum = 0.0;
    if (group < inside) {
        for (var own = thread % shares; own < params.group; own += shares) {
            let channel = group * params.group + own;
            sum += totals[channel % 8u / 4u * WG + channel / 8u][channel % 4u];
        }
    }
    workgroupBarrier();
    totals[thread].x = sum;
    workgroupBarrier();
    var total = 0.0;
    if (thread < inside) {
        for (var share = 0u; share < shares; share++) {
            total += totals[thread * shares + share].x;
        }
    }
    workgroupBarrier();
    return total;
}

// Of the group `thread` of the band from the vector `band` on; there are `inside` of these.
fn total_groups(thread: u32, image: u32, band: u32, inside: u32, begin: u32, end: u32) -> vec2<f32> {
    let lines = WG / params.band;
    let line = thread / params.band;
    let eight = band + thread % params.band;
    var total = Eight();
    var square = Eight();
    if (line < lines) {
        let first = firsts(image, eight);
        for (var pixel = begin + line; pixel < end; pixel += AT_ONCE * lines) {
#unroll k < AT_ONCE
            let words_$k = x[at_pixel(image, min(pixel + $ku * lines, end - 1u), eight)];
#endunroll
#unroll k < AT_ONCE
            if (pixel + $ku * lines < end) {
                let value = floats(words_$k);
                let low = value.low - first.low;
                let high = value.high - first.high;
                total.low += low;
                total.high += high;
                square.low += low * low;
                square.high += high * high;
            }
#endunroll
        }
    }
    let sum = total_of_group(thread, inside, total);
    return vec2<f32>(sum, total_of_group(thread, inside, square));
}
