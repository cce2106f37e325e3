// out[n, c, i] = x[n, c] at the place grid[n, i], where -1 and 1 are the two ends of a dimension.
// T: f32, f16
// TGrid: f32, f16
const BILINEAR = 0u;
const NEAREST = 1u;
const BICUBIC = 2u;
const ZEROS = 0u;
const BORDER = 1u;
const REFLECTION = 2u;
override WG: u32 = 64;
override FILTER: u32 = BILINEAR;
override PADDING_MODE: u32 = ZEROS;
override ALIGN_CORNERS: bool = false; // the ends are the centers of the outermost elements, not their edges

struct Params {
    count: u32,
    channels: u32,
    points: u32, // of one picture
    height: i32,
    width: i32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<storage, read> places: array<TGrid>;

#include image/cubic

fn source_of(coordinate: f32, size: f32) -> f32 {
    return select(((coordinate + 1.0) * size - 1.0) / 2.0, (coordinate + 1.0) / 2.0 * (size - 1.0), ALIGN_CORNERS);
}

// Brings a place outside of a dimension to the border, or mirrors it until it is inside.
fn brought_in(source: f32, size: f32) -> f32 {
    if (PADDING_MODE == ZEROS) {
        return source;
    }
    var place = source;
    if (PADDING_MODE == REFLECTION) {
        let low = select(-0.5, 0.0, ALIGN_CORNERS);
        let span = select(size, size - 1.0, ALIGN_CORNERS);
        if (span == 0.0) {
            return 0.0;
        }
        let away = abs(source - low);
        let turns = floor(away / span);
        let rest = away - turns * span;
        place = low + select(rest, span - rest, i32(turns) % 2 != 0);
    }
    return clamp(place, 0.0, size - 1.0);
}

fn value_at(plane: u32, h: i32, w: i32) -> f32 {
    if (h < 0 || h >= params.height || w < 0 || w >= params.width) {
        return 0.0;
    }
    return f32(x[plane + u32(h * params.width + w)]);
}

fn weight(distance: f32) -> f32 {
    if (FILTER == BICUBIC) {
        return cubic(distance, -0.75);
    }
    return 1.0 - distance;
}

fn each(i: u32) {
    let size = vec2<f32>(f32(params.width), f32(params.height));
    let point = i / params.points / params.channels * params.points + i % params.points;
    let plane = i / params.points * u32(params.height * params.width);
    var place = vec2<f32>(
        source_of(f32(places[point * 2u]), size.x),
        source_of(f32(places[point * 2u + 1u]), size.y),
    );
    if (FILTER != BICUBIC) {
        place = vec2<f32>(brought_in(place.x, size.x), brought_in(place.y, size.y));
    }
    // No element is this far away, and an integer holds it.
    place = clamp(place, vec2<f32>(-8388608.0), vec2<f32>(8388608.0));
    if (FILTER == NEAREST) {
        let nearest = vec2<i32>(round(place));
        out[i] = T(value_at(plane, nearest.y, nearest.x));
        return;
    }
    let radius = select(1, 2, FILTER == BICUBIC);
    let before = vec2<i32>(floor(place));
    var total = 0.0;
    for (var h = before.y - radius + 1; h <= before.y + radius; h++) {
        for (var w = before.x - radius + 1; w <= before.x + radius; w++) {
            let part = weight(abs(f32(h) - place.y)) * weight(abs(f32(w) - place.x));
            var tap = vec2<i32>(w, h);
            if (FILTER == BICUBIC) {
                tap = vec2<i32>(i32(brought_in(f32(w), size.x)), i32(brought_in(f32(h), size.y)));
            }
            total += part * value_at(plane, tap.y, tap.x);
        }
    }
    out[i] = T(total);
}

#include common/each
