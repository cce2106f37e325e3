// Sums of groups of channels, and of their squares, over a part of the pixels of images with their channels last. Numbers
// are taken less the first of their group, so that squares of what is far from zero lose no digits.
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

var<workgroup> totals: array<vec4<f32>, WG>;
var<workgroup> squares: array<vec4<f32>, WG>;

fn element(image: u32, channel: u32) -> f32 {
    return f32(x[image * params.pixels * params.fours + channel / 4u][channel % 4u]);
}

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
    let lines = WG / params.band;
    let line = thread / params.band;
    let four = i % bands * params.band + thread % params.band;
    var total = vec4<f32>();
    var square = vec4<f32>();
    if (line < lines) {
        var first: vec4<f32>;
        for (var k = 0u; k < 4u; k++) {
            first[k] = element(image, (four * 4u + k) / params.group * params.group);
        }
        let last = min((part + 1u) * params.share, params.pixels);
        for (var pixel = part * params.share + line; pixel < last; pixel += lines) {
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
    workgroupBarrier();
    let groups = params.fours * 4u / params.group;
    for (var own = thread; own < params.band * 4u / params.group; own += WG) {
        var sum = vec2<f32>();
        for (var channel = own * params.group; channel < (own + 1u) * params.group; channel++) {
            sum += vec2<f32>(totals[channel / 4u][channel % 4u], squares[channel / 4u][channel % 4u]);
        }
        let first = i % bands * params.band * 4u / params.group;
        sums[(image * groups + first + own) * params.parts + part] = sum;
    }
}
