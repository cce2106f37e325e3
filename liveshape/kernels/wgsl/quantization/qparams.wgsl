// The scales and zero points of quantized elements: one of each that the program names, or tensors of them, of which
// those at an element's place along `strides` are its own. Zero points are numbers, or packed as four signed bytes to a
// word.
#choice QPARAMS: given, tensors, packed_tensors
#if QPARAMS == given
struct Params {
    count: u32, // words of four
    scale: f32,
    inverse: f32,
    zero: f32,
    low: f32, // the range of the integers
    high: f32,
}
@group(0) @binding(2) var<uniform> params: Params;

fn place_of(i: u32) -> u32 {
    return 0u;
}

fn scale_at(place: u32) -> f32 {
    return params.scale;
}

fn inverse_at(place: u32) -> f32 {
    return params.inverse;
}

fn zero_at(place: u32) -> f32 {
    return params.zero;
}
#else
// TScale: f32, f16
#if QPARAMS == tensors
// TZero: i32, f32, f16
override ZEROS: bool = true; // else all zero points are zero
#endif

struct Params {
    count: u32, // words of four
    elements: u32,
    rank: u32,
    low: f32, // the range of the integers
    high: f32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}
@group(0) @binding(2) var<storage, read> scales: array<TScale>;
#if QPARAMS == tensors
@group(0) @binding(3) var<storage, read> zeros: array<TZero>;
#else
@group(0) @binding(3) var<storage, read> zeros: array<u32>;
#endif
@group(0) @binding(4) var<uniform> params: Params;

#include movement/walk

fn place_of(i: u32) -> u32 {
    return walk(min(i, params.elements - 1u));
}

fn scale_at(place: u32) -> f32 {
    return f32(scales[place]);
}

fn inverse_at(place: u32) -> f32 {
    return 1.0 / scale_at(place);
}

fn zero_at(place: u32) -> f32 {
#if QPARAMS == packed_tensors
    return f32(signed_byte(zeros[place / 4u], place % 4u));
#else
    if (ZEROS) {
        return f32(zeros[place]);
    }
    return 0.0;
#endif
}
#endif
