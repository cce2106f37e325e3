// Images as halves with their channels last, filled with zeros to whole vectors of eight. What halves cannot hold becomes
// NaN, so that nobody takes it for a number. A workgroup turns DEEP vectors of as many pixels as it has threads for.
// unchecked: images, channels and pixels are those of the tensors, which planning checked.
// T: f32, f16
override WG: u32 = 256;
override DEEP: u32 = 8;

const PIXELS: u32 = WG / DEEP;
const PITCH: u32 = DEEP + 1; // one more, so that pixels begin in different banks

struct Params {
    images: u32,
    channels: u32,
    pixels: u32, // of an image
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<f16>>;
@group(0) @binding(1) var<storage, read> x: array<T>;

#include common/narrowed

var<workgroup> turned: array<vec4<f16>, 2 * PIXELS * PITCH>;

fn four_channels(image: u32, channel: u32, pixel: u32) -> vec4<f16> {
    var four = vec4<f32>();
    for (var i = 0u; i < min(4u, max(params.channels, channel) - channel); i++) {
        four[i] = f32(x[(image * params.channels + channel + i) * params.pixels + pixel]);
    }
    return vec4<f16>(narrowed(four));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let eights = (params.channels + 7u) / 8u;
    let bands = (eights + DEEP - 1u) / DEEP;
    let i = group_index(group, grid);
    let first_pixel = i / bands * PIXELS; // of all images
    let first_eight = i % bands * DEEP;
    let count = params.images * params.pixels;
    let pixel = first_pixel + thread % PIXELS;
    let eight = first_eight + thread / PIXELS;
    if (pixel < count && eight < eights) {
        let image = pixel / params.pixels;
        let place = pixel % params.pixels;
        let at = 2u * (thread % PIXELS * PITCH + thread / PIXELS);
        turned[at] = four_channels(image, eight * 8u, place);
        turned[at + 1u] = four_channels(image, eight * 8u + 4u, place);
    }
    workgroupBarrier();
    if (first_pixel + thread / DEEP < count && first_eight + thread % DEEP < eights) {
        let at = 2u * (thread / DEEP * PITCH + thread % DEEP);
        let place = 2u * ((first_pixel + thread / DEEP) * eights + first_eight + thread % DEEP);
        out[place] = turned[at];
        out[place + 1u] = turned[at + 1u];
    }
}
