// Each element of out is found in a window of x: one walk for averages and maxima, in up to three dimensions.
// T: f32, f16, i32
#choice POOL: average, maximum, maximum_and_index
override WG: u32 = 64;
override ADAPTIVE: bool = false; // windows share x out evenly, whatever its size

struct Params {
    sizes: vec4<i32>, // depth, height and width of x
    outs: vec4<i32>, // and of out
    window: vec4<i32>,
    stride: vec4<i32>,
    padding: vec4<i32>,
    dilation: vec4<i32>,
    count: u32,
    divisor: i32,
    lowest: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;
#if POOL == maximum_and_index
@group(0) @binding(2) var<storage, read_write> indices: array<i32>; // of the maxima, in their planes
#endif

#include image/place

#if POOL == average
// The average of a window, by the elements in it, by these and the padding, or by a number.
const INSIDE = 0u;
const PADDED = 1u;
const GIVEN = 2u;
override DIVISOR: u32 = INSIDE;

alias Found = T_math;

fn initial(first: i32) -> Found {
    return Found(0);
}

fn accumulate(found: Found, value: T_math, index: i32) -> Found {
    return found + value;
}

fn store(i: u32, found: Found, inside: vec3<i32>, padded: vec3<i32>) {
    let extent = select(inside, padded, DIVISOR == PADDED);
    let divisor = select(extent.x * extent.y * extent.z, params.divisor, DIVISOR == GIVEN);
    out[i] = T(found / T_math(divisor));
}
#else
// The greatest element of a window, the first of equals; a NaN is above every number, and the last NaN stays.
override INTEGER: bool = false; // whole numbers compare as they are, all others by their keys

#include common/float_keys

struct Found {
    value: T_math,
    key: u32,
    index: i32,
}

fn initial(first: i32) -> Found {
    return Found(T_math(params.lowest), 0u, first);
}

fn accumulate(found: Found, value: T_math, index: i32) -> Found {
    if (INTEGER) {
        if (value > found.value) {
            return Found(value, 0u, index);
        }
        return found;
    }
    let key = key_of(f32(value));
    if (key > found.key || key == NAN_KEY) {
        return Found(value, key, index);
    }
    return found;
}

fn store(i: u32, found: Found, inside: vec3<i32>, padded: vec3<i32>) {
    out[i] = T(found.value);
#if POOL == maximum_and_index
    indices[i] = found.index;
#endif
}
#endif

fn each(i: u32) {
    let sizes = params.sizes.xyz;
    let outs = params.outs.xyz;
    let padding = params.padding.xyz;
    let dilation = params.dilation.xyz;
    let place = place_of(i, outs);
    let plane = place.plane * u32(sizes.x * sizes.y * sizes.z);
    var low = place.at * params.stride.xyz - padding;
    var high = low + (params.window.xyz - 1) * dilation + 1;
    if (ADAPTIVE) {
        low = place.at * sizes / outs;
        high = ((place.at + 1) * sizes + outs - 1) / outs;
    }
    let first = low + max((dilation - 1 - low) / dilation, vec3<i32>(0)) * dilation;
    let last = min(high, sizes);
    var found = initial((first.x * sizes.y + first.y) * sizes.z + first.z);
    for (var d = first.x; d < last.x; d += dilation.x) {
        for (var h = first.y; h < last.y; h += dilation.y) {
            for (var w = first.z; w < last.z; w += dilation.z) {
                let index = (d * sizes.y + h) * sizes.z + w;
                found = accumulate(found, T_math(x[plane + u32(index)]), index);
            }
        }
    }
    store(i, found, last - first, min(high, sizes + padding) - low);
}

#include common/each
