// A group norm of images with their channels last. A workgroup has a few vectors of channels, whole groups, of a part of the
// pixels: with the sums of normalization/pixel_sums.wgsl, or of all pixels, whose sums it computes itself.
// composable: each vector is stored once.
#choice STATISTICS: own, parts
// unchecked: images, channels and pixels are those of the tensor, which planning checked.
// T: f32, f16
// TOut: f32, f16
// TWeight: f32, f16
override WG: u32 = 256;
override AFFINE: u32 = 0; // 1: a weight, 2: an addend, 3: both

struct Params {
    images: u32,
    pixels: u32, // of an image
    fours: u32, // of channels
    group: u32, // channels
    band: u32, // fours of channels of a workgroup, whole groups
    parts: u32, // of the pixels
    share: u32, // pixels of a part
    eps: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<T>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<TWeight>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<TWeight>>;
#if STATISTICS == parts
@group(0) @binding(4) var<storage, read> sums: array<vec2<f32>>;
@group(0) @binding(5) var<uniform> params: Params;
#else
@group(0) @binding(4) var<uniform> params: Params;
#endif

#include normalization/pixel_totals

var<workgroup> group_totals: array<vec2<f32>, WG>; // of the groups of the band

// The totals of the groups of the band; behind the next barrier all threads see them.
#if STATISTICS == parts
fn total_groups(thread: u32, image: u32, band: u32, inside: u32) {
    let groups = params.fours * 4u / params.group;
    let lines = WG / inside;
    let line = thread / inside;
    var sum = vec2<f32>();
    if (line < lines) {
        let start = (image * groups + band * 4u / params.group + thread % inside) * params.parts;
        for (var part = line; part < params.parts; part += lines) {
            sum += sums[start + part];
        }
    }
    totals[thread] = vec4<f32>(sum, 0.0, 0.0);
    workgroupBarrier();
    if (line == 0u) {
        for (var other = 1u; other < min(lines, params.parts); other++) {
            sum += totals[other * inside + thread].xy;
        }
        group_totals[thread] = sum;
    }
}
#else
fn total_groups(thread: u32, image: u32, band: u32, inside: u32) {
    total_channels(thread, image, band, 0u, params.pixels);
    workgroupBarrier();
    if (thread < inside) {
        group_totals[thread] = total_of_group(thread);
    }
}
#endif

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let bands = params.fours / params.band;
    let i = group_index(group, grid);
    let part = i / bands % params.parts;
    let image = i / bands / params.parts;
    let band = i % bands * params.band;
    let read = min(image, params.images - 1u);
    total_groups(thread, read, band, params.band * 4u / params.group);
    workgroupBarrier();
    let lines = WG / params.band;
    let line = thread / params.band;
    if (image >= params.images || line >= lines) {
        return;
    }
    let own = thread % params.band;
    let four = band + own;
    let first = firsts(image, four);
    let count = f32(params.pixels * params.group);
    var scale: vec4<f32>;
    var mean: vec4<f32>;
    for (var k = 0u; k < 4u; k++) {
        let total = group_totals[(own * 4u + k) / params.group] / count;
        mean[k] = first[k] + total.x;
        scale[k] = 1.0 / sqrt(max(total.y - total.x * total.x, 0.0) + params.eps);
    }
    if ((AFFINE & 1u) != 0u) {
        scale *= vec4<f32>(weight[four]);
    }
    var addend = -mean * scale;
    if ((AFFINE & 2u) != 0u) {
        addend += vec4<f32>(bias[four]);
    }
    let begin = part * params.share;
    let end = min(begin + params.share, params.pixels);
    for (var pixel = begin + line; pixel < end; pixel += lines) {
        let at = (image * params.pixels + pixel) * params.fours + four;
        out[at] = vec4<TOut>(vec4<f32>(x[at]) * scale + addend);
    }
}
