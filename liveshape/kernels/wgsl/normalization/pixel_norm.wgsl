// A group norm of images with their channels last. A workgroup has whole groups of a few vectors of eight channels, a
// `band`, of a part of the pixels: with the sums that others found of such parts, or of all pixels, whose sums it computes
// itself. Numbers are taken less the first of their group in the image, so that squares of what is far from zero lose no
// digits.
#choice STATISTICS: own, parts, found
// words x
// unchecked: images, channels and pixels are those of the tensor, which planning checked.
// TOut: f32, f16
// TWeight: f32, f16
override WG: u32 = 256;
override AT_ONCE: u32 = 4; // pixels of a thread whose loads are on their way together

struct Params {
    images: u32,
    pixels: u32, // of an image
    eights: u32, // of channels
    group: u32, // channels
    band: u32, // eights of channels of a workgroup, whole groups
    parts: u32, // of the pixels
    share: u32, // pixels of a part
#if STATISTICS != found
    eps: f32,
#endif
}
#if STATISTICS == found
// Sums of groups of channels, and of their squares, over a part of the pixels.
// scratch sums
@group(0) @binding(0) var<storage, read_write> sums: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
#else
// composable: each vector is stored once.
override AFFINE: u32 = 0; // 1: a weight, 2: an addend, 3: both

@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<TWeight>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<TWeight>>;
#if STATISTICS == parts
@group(0) @binding(4) var<storage, read> sums: array<vec2<f32>>;
#endif
#endif

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

#if STATISTICS != found
var<workgroup> groups: array<vec2<f32>, WG>; // sums of the groups of the band

#if STATISTICS == parts
fn total_parts(thread: u32, image: u32, band: u32, inside: u32) -> vec2<f32> {
    let lines = min(WG / inside, params.parts);
    let line = thread / inside;
    var sum = vec2<f32>();
    if (line < lines) {
        let all = params.eights * 8u / params.group;
        let start = image * params.parts * all + band * 8u / params.group + thread % inside;
        for (var part = line; part < params.parts; part += lines) {
            sum += sums[start + part * all];
        }
    }
    groups[thread] = sum;
    for (var half = pairs_of(lines); half > 0u; half /= 2u) {
        workgroupBarrier();
        if (line < half && line + half < lines) {
            groups[thread] += groups[thread + half * inside];
        }
    }
    return groups[thread];
}
#endif

// What four channels are multiplied by, and what is added then.
struct Scaling {
    factor: vec4<f32>,
    addend: vec4<f32>,
}

fn scaling(own: u32, four: u32, first: vec4<f32>) -> Scaling {
    let count = f32(params.pixels * params.group);
    var factor: vec4<f32>;
    var mean: vec4<f32>;
    for (var k = 0u; k < 4u; k++) {
        let total = groups[(own + k) / params.group] / count;
        mean[k] = first[k] + total.x;
        factor[k] = 1.0 / sqrt(max(total.y - total.x * total.x, 0.0) + params.eps);
    }
    if ((AFFINE & 1u) != 0u) {
        factor *= vec4<f32>(weight[four]);
    }
    var addend = -mean * factor;
    if ((AFFINE & 2u) != 0u) {
        addend += vec4<f32>(bias[four]);
    }
    return Scaling(factor, addend);
}
#endif

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let bands = params.eights / params.band;
    let inside = params.band * 8u / params.group;
    let i = group_index(group, grid);
    let band = i % bands * params.band;
    let part = i / bands % params.parts;
    let image = i / bands / params.parts;
    let read = min(image, params.images - 1u);
    let begin = part * params.share;
    let end = min(begin + params.share, params.pixels);
#if STATISTICS == found
    let found = total_groups(thread, read, band, inside, min(begin, params.pixels), end);
    if (thread < inside) {
        sums[((read * params.parts + part) * bands + i % bands) * inside + thread] = found;
    }
#else
#if STATISTICS == parts
    let found = total_parts(thread, read, band, inside);
#else
    let found = total_groups(thread, read, band, inside, 0u, params.pixels);
#endif
    workgroupBarrier();
    if (thread < inside) {
        groups[thread] = found;
    }
    workgroupBarrier();
    let lines = WG / params.band;
    let line = thread / params.band;
    if (image >= params.images || line >= lines) {
        return;
    }
    let own = thread % params.band;
    let eight = band + own;
    let first = firsts(image, eight);
    let low = scaling(own * 8u, 2u * eight, first.low);
    let high = scaling(own * 8u + 4u, 2u * eight + 1u, first.high);
    for (var pixel = begin + line; pixel < end; pixel += AT_ONCE * lines) {
#unroll k < AT_ONCE
        let at_$k = at_pixel(image, min(pixel + $ku * lines, end - 1u), eight);
        let words_$k = x[at_$k];
#endunroll
#unroll k < AT_ONCE
        if (pixel + $ku * lines < end) {
            let value = floats(words_$k);
            out[2u * at_$k] = vec4<TOut>(value.low * low.factor + low.addend);
            out[2u * at_$k + 1u] = vec4<TOut>(value.high * high.factor + high.addend);
        }
#endunroll
    }
#endif
}
