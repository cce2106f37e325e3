// Sums of groups of channels, and of their squares, over a part of the pixels of images with their channels last: see
// normalization/pixel_totals.wgsl.
// scratch sums
// unchecked: images, channels and pixels are those of the tensor, which planning checked.
// T: f32, f16
override WG: u32 = 256;

struct Params {
    images: u32,
    pixels: u32, // of an image
    fours: u32, // of channels
    group: u32, // channels
    band: u32, // fours of channels of a workgroup, whole groups
    parts: u32, // of the pixels
    share: u32, // pixels of a part
}
@group(0) @binding(0) var<storage, read_write> sums: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<T>>;
@group(0) @binding(2) var<uniform> params: Params;

#include normalization/pixel_totals

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let bands = params.fours / params.band;
    let i = group_index(group, grid);
    let part = i / bands % params.parts;
    let image = min(i / bands / params.parts, params.images - 1u);
    let begin = part * params.share;
    total_channels(thread, image, i % bands * params.band, begin, min(begin + params.share, params.pixels));
    workgroupBarrier();
    let groups = params.fours * 4u / params.group;
    let inside = params.band * 4u / params.group;
    for (var own = thread; own < inside; own += WG) {
        sums[(image * groups + i % bands * inside + own) * params.parts + part] = total_of_group(own);
    }
}
