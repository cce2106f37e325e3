// Sums of groups of channels, and of their squares, over some pixels of an image with its channels last, by a workgroup that
// has whole groups of a few vectors of channels, a `band`. Numbers are taken less the first of their group in the image, so
// that squares of what is far from zero lose no digits.
var<workgroup> totals: array<vec4<f32>, WG>;
var<workgroup> squares: array<vec4<f32>, WG>;

fn element(image: u32, channel: u32) -> f32 {
    return f32(x[image * params.pixels * params.fours + channel / 4u][channel % 4u]);
}

// The first number of the group of each of four channels.
fn firsts(image: u32, four: u32) -> vec4<f32> {
    var first: vec4<f32>;
    for (var k = 0u; k < 4u; k++) {
        first[k] = element(image, (four * 4u + k) / params.group * params.group);
    }
    return first;
}

// Of each channel of the band from the vector `band` on; behind the next barrier all threads see them.
fn total_channels(thread: u32, image: u32, band: u32, begin: u32, end: u32) {
    let lines = WG / params.band;
    let line = thread / params.band;
    let four = band + thread % params.band;
    var total = vec4<f32>();
    var square = vec4<f32>();
    if (line < lines) {
        let first = firsts(image, four);
        for (var pixel = begin + line; pixel < end; pixel += lines) {
            let value = vec4<f32>(x[(image * params.pixels + pixel) * params.fours + four]) - first;
            total += value;
            square += value * value;
        }
    }
    totals[thread] = total;
    squares[thread] = square;
    workgroupBarrier();
    if (line == 0u) {
        for (var other = 1u; other < lines; other++) {
            total += totals[other * params.band + thread];
            square += squares[other * params.band + thread];
        }
        totals[thread] = total;
        squares[thread] = square;
    }
}

// Of a group of the band.
fn total_of_group(own: u32) -> vec2<f32> {
    var sum = vec2<f32>();
    for (var channel = own * params.group; channel < (own + 1u) * params.group; channel++) {
        sum += vec2<f32>(totals[channel / 4u][channel % 4u], squares[channel / 4u][channel % 4u]);
    }
    return sum;
}
