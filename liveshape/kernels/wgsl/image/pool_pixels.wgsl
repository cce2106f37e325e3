// Pooling of images with their channels last: four channels of a pixel of out are found in a window of x.
// composable: each vector is stored once.
// T: f32, f16
// TOut: f32, f16
#choice POOL: average, maximum
override WG: u32 = 64;

struct Params {
    sizes: vec4<i32>, // height and width of x
    outs: vec4<i32>, // and of out
    window: vec4<i32>,
    stride: vec4<i32>,
    padding: vec4<i32>,
    dilation: vec4<i32>,
    fours: u32, // of channels
    count: u32,
    divisor: i32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<T>>;

#if POOL == average
// By the elements of a window, by these and the padding, or by a number.
const INSIDE = 0u;
const PADDED = 1u;
const GIVEN = 2u;
override DIVISOR: u32 = INSIDE;
#else
var<private> lowest_bits: u32 = 0xff800000u; // a constant expression may not be infinite

fn is_nan(value: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(value) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}
#endif

fn each(i: u32) {
    let pixel = i / params.fours;
    let row = pixel / u32(params.outs.y);
    let image = row / u32(params.outs.x);
    let at = vec2<i32>(i32(row) - i32(image) * params.outs.x, i32(pixel) - i32(row) * params.outs.y);
    let low = at * params.stride.xy - params.padding.xy;
    let high = low + (params.window.xy - 1) * params.dilation.xy + 1;
    let first = low + max((params.dilation.xy - 1 - low) / params.dilation.xy, vec2<i32>(0)) * params.dilation.xy;
    let last = min(high, params.sizes.xy);
#if POOL == average
    var found = vec4<f32>();
#else
    var found = vec4<f32>(bitcast<f32>(lowest_bits));
#endif
    for (var h = first.x; h < last.x; h += params.dilation.x) {
        for (var w = first.y; w < last.y; w += params.dilation.y) {
            let place = (i32(image) * params.sizes.x + h) * params.sizes.y + w;
            let value = vec4<f32>(x[u32(place) * params.fours + i % params.fours]);
#if POOL == average
            found += value;
#else
            found = select(max(found, value), found + value, is_nan(found) | is_nan(value));
#endif
        }
    }
#if POOL == average
    let inside = last - first;
    let padded = min(high, params.sizes.xy + params.padding.xy) - low;
    let extent = select(inside, padded, DIVISOR == PADDED);
    found /= f32(select(extent.x * extent.y, params.divisor, DIVISOR == GIVEN));
#endif
    out[i] = vec4<TOut>(found);
}

#include common/each
