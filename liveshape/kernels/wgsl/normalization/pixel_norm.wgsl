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
override AFFINE: u32 = 0; // 1: a weight, 2: an addend, 3: both

struct Params {
    images: u32,
    pixels: u32, // of an image
    eights: u32, // of channels
    group: u32, // channels
    band: u32, // eights of channels of a workgroup, whole groups
    parts: u32, // of the pixels
    share: u32, // pixels of a part
    eps: f32,
}
#if STATISTICS == found
// Sums of groups of channels, and of their squares, over a part of the pixels.
// scratch sums
@group(0) @binding(0) var<storage, read_write> sums: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
#else
// composable: each vector is stored once.
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<TWeight>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<TWeight>>;
#endif
#if STATISTICS == parts
@group(0) @binding(4) var<storage, read> sums: array<vec2<f32>>;
#endif

alias Eight = mat2x4<f32>; // channels

var<workgroup> totals: array<vec4<f32>, 2 * WG>; // of every thread: four channels, then four more
var<workgroup> groups: array<vec2<f32>, WG>; // sums of the groups of the band, and of their squares

fn floats(words: vec4<u32>) -> Eight {
    let low = vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
    return Eight(low, vec4<f32>(unpack2x16float(words.z), unpack2x16float(words.w)));
}

fn at_pixel(image: u32, pixel: u32, eight: u32) -> u32 {
    return (image * params.pixels + pixel) * params.eights + eight;
}

// The first numbers of the groups of eight channels.
fn firsts(image: u32, eight: u32) -> Eight {
    var first: Eight;
    for (var k = 0u; k < 8u; k++) {
        let place = (eight * 8u + k) / params.group * params.group;
        let pair = unpack2x16float(x[at_pixel(image, 0u, place / 8u)][place % 8u / 2u]);
        first[k / 4u][k % 4u] = pair[place % 2u];
    }
    return first;
}

// Lines of so many threads meet in pairs; then `totals` of the first are those of all.
fn meet(thread: u32, pitch: u32, lines: u32) {
    let line = thread / pitch;
    for (var half = 1u << (31u - countLeadingZeros(max(lines, 2u) - 1u)); half > 0u; half /= 2u) {
        workgroupBarrier();
        if (line < half && line + half < lines) {
            totals[thread] += totals[thread + half * pitch];
            totals[WG + thread] += totals[WG + thread + half * pitch];
        }
    }
    workgroupBarrier();
}

// The sum of the group `thread` of the band, of what all threads have of their channels; up to four threads share the
// channels of a group.
fn total_of_group(thread: u32, inside: u32, mine: Eight) -> f32 {
    totals[thread] = mine[0];
    totals[WG + thread] = mine[1];
    meet(thread, params.band, WG / params.band);
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

// Sums over pixels of the group `thread` of the band from the vector `band` on; there are `inside` of these.
fn total_of_pixels(thread: u32, image: u32, band: u32, inside: u32, begin: u32, end: u32) -> vec2<f32> {
    let lines = WG / params.band;
    let line = thread / params.band;
    let eight = band + thread % params.band;
    var total: Eight;
    var square: Eight;
    if (line < lines) {
        let first = firsts(image, eight);
        for (var pixel = begin + line; pixel < end; pixel += AT_ONCE * lines) {
#unroll k < AT_ONCE
            let words_$k = x[at_pixel(image, min(pixel + $ku * lines, end - 1u), eight)];
#endunroll
#unroll k < AT_ONCE
            if (pixel + $ku * lines < end) {
                let value = floats(words_$k) - first;
                total += value;
                square += Eight(value[0] * value[0], value[1] * value[1]);
            }
#endunroll
        }
    }
    let sum = total_of_group(thread, inside, total);
    return vec2<f32>(sum, total_of_group(thread, inside, square));
}

#if STATISTICS == parts
// The same, of what others found of all parts.
fn total_of_parts(thread: u32, image: u32, band: u32, inside: u32) -> vec2<f32> {
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
    totals[thread] = vec4<f32>(sum, 0.0, 0.0);
    meet(thread, inside, lines);
    return totals[thread].xy;
}
#endif

fn each_group(group: u32, thread: u32) {
    let bands = params.eights / params.band;
    let inside = params.band * 8u / params.group;
    let band = group % bands * params.band;
    let part = group / bands % params.parts;
    let image = group / bands / params.parts;
    let read = min(image, params.images - 1u);
    let begin = part * params.share;
    let end = min(begin + params.share, params.pixels);
#if STATISTICS == parts
    let found = total_of_parts(thread, read, band, inside);
#elif STATISTICS == own
    let found = total_of_pixels(thread, read, band, inside, 0u, params.pixels);
#else
    let found = total_of_pixels(thread, read, band, inside, min(begin, params.pixels), end);
    if (thread < inside) {
        sums[((read * params.parts + part) * bands + group % bands) * inside + thread] = found;
    }
#endif
#if STATISTICS != found
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
    var mean = firsts(image, eight);
    var factor: Eight; // what channels are multiplied by, before an addend
    for (var k = 0u; k < 8u; k++) {
        let total = groups[(own * 8u + k) / params.group] / f32(params.pixels * params.group);
        mean[k / 4u][k % 4u] += total.x;
        factor[k / 4u][k % 4u] = 1.0 / sqrt(max(total.y - total.x * total.x, 0.0) + params.eps);
    }
    var addend: Eight;
    for (var h = 0u; h < 2u; h++) {
        if ((AFFINE & 1u) != 0u) {
            factor[h] *= vec4<f32>(weight[2u * eight + h]);
        }
        addend[h] = -mean[h] * factor[h];
        if ((AFFINE & 2u) != 0u) {
            addend[h] += vec4<f32>(bias[2u * eight + h]);
        }
    }
    for (var pixel = begin + line; pixel < end; pixel += AT_ONCE * lines) {
#unroll k < AT_ONCE
        let at_$k = at_pixel(image, min(pixel + $ku * lines, end - 1u), eight);
        let words_$k = x[at_$k];
#endunroll
#unroll k < AT_ONCE
        if (pixel + $ku * lines < end) {
            let value = floats(words_$k);
            out[2u * at_$k] = vec4<TOut>(value[0] * factor[0] + addend[0]);
            out[2u * at_$k + 1u] = vec4<TOut>(value[1] * factor[1] + addend[1]);
        }
#endunroll
    }
#endif
}

#include common/each_group
