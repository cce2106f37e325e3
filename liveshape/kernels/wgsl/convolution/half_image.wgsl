// The images of a batch as halves for matrix units, channels last, in vectors of eight whose last is filled with zeros.
// All are divided by one power of two, since the sums of a pixel are of its neighbours, too; numbers that are halves
// stay as they are (not SCALED). A workgroup turns DEEP vectors of as many pixels as it has threads for.
// scratch halves, factor, largest_of_parts
// unchecked: images, channels and pixels are those of the tensor, which planning checked.
// T: f32, f16
override WG: u32 = 256;
override DEEP: u32 = 8;
override SCALED: bool = true;

const PIXELS: u32 = WG / DEEP;
const PITCH: u32 = DEEP + 1; // one more, so that pixels begin in different banks

struct Params {
    images: u32,
    channels: u32,
    pixels: u32, // of an image
    parts: u32,
}
@group(0) @binding(0) var<storage, read_write> halves: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> factor: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<T>;
@group(0) @binding(3) var<storage, read> largest_of_parts: array<f32>;

#include quantization/half_exponent
#include quantization/largest

var<workgroup> turned: array<vec4<u32>, PIXELS * PITCH>;

fn four_channels(image: u32, channel: u32, pixel: u32) -> vec4<f32> {
    var four = vec4<f32>();
    for (var i = 0u; i < min(4u, max(params.channels, channel) - channel); i++) {
        four[i] = f32(x[(image * params.channels + channel + i) * params.pixels + pixel]);
    }
    return four;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    var scale = HalfScale(1.0, 1.0);
    if (SCALED) {
        var most = 0.0;
        for (var i = thread; i < params.parts; i += WG) {
            most = max(most, largest_of_parts[i]);
        }
        scale = half_scale(largest_of_four(largest(thread, thread, WG, 1u, vec4<f32>(most))));
    }
    let eights = (params.channels + 7u) / 8u;
    let bands = (eights + DEEP - 1u) / DEEP;
    let i = group_index(group, grid);
    if (i == 0u && thread == 0u) {
        factor[0] = scale.factor;
    }
    let first_pixel = i / bands * PIXELS; // of all images
    let first_eight = i % bands * DEEP;
    let count = params.images * params.pixels;
    let pixel = first_pixel + thread % PIXELS;
    let eight = first_eight + thread / PIXELS;
    if (pixel < count && eight < eights) {
        let image = pixel / params.pixels;
        let place = pixel % params.pixels;
        turned[thread % PIXELS * PITCH + thread / PIXELS] = eight_halves(
            four_channels(image, eight * 8u, place) * scale.inverse,
            four_channels(image, eight * 8u + 4u, place) * scale.inverse,
        );
    }
    workgroupBarrier();
    if (first_pixel + thread / DEEP < count && first_eight + thread % DEEP < eights) {
        halves[(first_pixel + thread / DEEP) * eights + first_eight + thread % DEEP] =
            turned[thread / DEEP * PITCH + thread % DEEP];
    }
}
