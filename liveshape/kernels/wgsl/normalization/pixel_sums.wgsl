// Sums of groups of channels, and of their squares, over a part of the pixels of images with their channels last: see
// normalization/pixel_totals.wgsl.
// scratch sums
// words x
// unchecked: images, channels and pixels are those of the tensor, which planning checked.
override WG: u32 = 256;

struct Params {
    images: u32,
    pixels: u32, // of an image
    eights: u32, // of channels
    group: u32, // channels
    band: u32, // eights of channels of a workgroup, whole groups
    parts: u32, // of the pixels
    share: u32, // pixels of a part
}
@group(0) @binding(0) var<storage, read_write> sums: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<uniform> params: Params;

#include normalization/pixel_totals

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let bands = params.eights / params.band;
    let inside = params.band * 8u / params.group;
    let i = group_index(group, grid);
    let band = i % bands;
    let part = i / bands % params.parts;
    let image = min(i / bands / params.parts, params.images - 1u);
    let begin = min(part * params.share, params.pixels);
    let end = min(begin + params.share, params.pixels);
    let found = total_groups(thread, image, band * params.band, inside, begin, end);
    if (thread < inside) {
        sums[((image * params.parts + part) * bands + band) * inside + thread] = found;
    }
}
