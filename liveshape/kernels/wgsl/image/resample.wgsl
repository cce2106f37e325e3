// out[i] = x at the place that i has in it: the nearest element, or a sum of those around it, weighted along each
// dimension on its own. The source of o is o * scale, or (o + 0.5) * scale - 0.5 where elements have an extent.
// T: f32, f16
const NEAREST = 0u;
const NEAREST_EXACT = 1u;
const LINEAR = 2u;
const CUBIC = 3u;
override WG: u32 = 64;
override FILTER: u32 = NEAREST;
override DIMS: u32 = 2; // the last of three
override ALIGN_CORNERS: bool = false;
override ANTIALIAS: bool = false;

struct Params {
    sizes: vec4<i32>, // depth, height and width of x
    outs: vec4<i32>, // and of out
    scales: vec4<f32>,
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;

#include image/cubic
#include image/place

struct Taps {
    first: i32,
    last: i32,
    source: f32,
    squeeze: f32, // what brings distances in x to those of the filter
}

fn taps_of(axis: u32, o: i32) -> Taps {
    let size = params.sizes[axis];
    let scale = params.scales[axis];
    let whole = f32(o);
    let kept = (FILTER == LINEAR || ANTIALIAS) && size == params.outs[axis];
    if (kept || axis + DIMS < 3u) {
        return Taps(o, o, whole, 1.0);
    }
    if (FILTER <= NEAREST_EXACT) {
        let nearest = min(i32(floor(select(whole, whole + 0.5, FILTER == NEAREST_EXACT) * scale)), size - 1);
        return Taps(nearest, nearest, f32(nearest), 1.0);
    }
    let radius = i32(FILTER - LINEAR) + 1;
    if (ANTIALIAS) {
        let stretch = max(scale, 1.0);
        let center = (whole + 0.5) * scale;
        let support = f32(radius) * stretch;
        let first = max(i32(center - support + 0.5), 0);
        return Taps(first, min(i32(center + support + 0.5), size) - 1, center - 0.5, 1.0 / stretch);
    }
    var source = select((whole + 0.5) * scale - 0.5, whole * scale, ALIGN_CORNERS);
    source = select(source, max(source, 0.0), FILTER == LINEAR);
    let before = i32(floor(source));
    return Taps(before - radius + 1, before + radius, source, 1.0);
}

fn weight(taps: Taps, tap: i32) -> f32 {
    let distance = abs(f32(tap) - taps.source) * taps.squeeze;
    if (FILTER == CUBIC) {
        return cubic(distance, select(-0.75, -0.5, ANTIALIAS));
    }
    return max(1.0 - distance, 0.0);
}

fn each(i: u32) {
    let sizes = params.sizes.xyz;
    let place = place_of(i, params.outs.xyz);
    let plane = place.plane * u32(sizes.x * sizes.y * sizes.z);
    let deep = taps_of(0u, place.at.x);
    let down = taps_of(1u, place.at.y);
    let along = taps_of(2u, place.at.z);
    if (FILTER <= NEAREST_EXACT) {
        out[i] = x[plane + u32((deep.first * sizes.y + down.first) * sizes.z + along.first)];
        return;
    }
    var total = 0.0;
    var weights = 0.0;
    let end = sizes - 1;
    for (var d = deep.first; d <= deep.last; d++) {
        for (var h = down.first; h <= down.last; h++) {
            let outer = weight(deep, d) * weight(down, h);
            let line = plane + u32((clamp(d, 0, end.x) * sizes.y + clamp(h, 0, end.y)) * sizes.z);
            for (var w = along.first; w <= along.last; w++) {
                let part = outer * weight(along, w);
                total += part * f32(x[line + u32(clamp(w, 0, end.z))]);
                weights += part;
            }
        }
    }
    // A given scale may lead beyond x, where nothing has a weight.
    out[i] = T(select(total, total / weights, ANTIALIAS && weights != 0.0));
}

#include common/each
