// A group norm of images with their channels last. A workgroup has a few vectors of channels, whole groups, of a part of the
// pixels: with the sums of normalization/pixel_sums.wgsl, or of all pixels, whose sums it computes itself.
// composable: each vector is stored once.
#choice STATISTICS: own, parts
// words x
// unchecked: images, channels and pixels are those of the tensor, which planning checked.
// TOut: f32, f16
// TWeight: f32, f16
override WG: u32 = 256;
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
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<TWeight>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<TWeight>>;
#if STATISTICS == parts
@group(0) @binding(4) var<storage, read> sums: array<vec2<f32>>;
@group(0) @binding(5) var<uniform> params: Params;
#else
@group(0) @binding(4) var<uniform> params: Params;
#endif

#include normalization/pixel_totals

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

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let bands = params.eights / params.band;
    let inside = params.band * 8u / params.group;
    let i = group_index(group, grid);
    let part = i / bands % params.parts;
    let image = i / bands / params.parts;
    let band = i % bands * params.band;
    let read = min(image, params.images - 1u);
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
    let begin = part * params.share;
    let end = min(begin + params.share, params.pixels);
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
}
