// out is x shifted by `before` in every dimension; outside of x it is a constant, the mirror image of x or its border.
// parts: both of a complex number are shifted alike, and zero outside.
// composable: each element is stored once.
const CONSTANT = 0u;
const REFLECT = 1u;
const REPLICATE = 2u;
override WG: u32 = 64;
override FILL: u32 = CONSTANT;
override INTEGER: bool = false; // an integer constant comes in two halves that f32 holds exactly

struct Params {
    count: u32,
    rank: u32,
    high: f32,
    low: f32,
    sizes: array<vec4<u32>, 2>,
    before: array<vec4<i32>, 2>,
    extents: array<vec4<i32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;

fn each(i: u32) {
    var rest = i;
    var source = 0;
    var stride = 1;
    var inside = true;
    for (var axis = params.rank; axis > 0u; axis--) {
        let dim = axis - 1u;
        let size = params.sizes[dim >> 2u][dim & 3u];
        let extent = params.extents[dim >> 2u][dim & 3u];
        var index = i32(rest % size) - params.before[dim >> 2u][dim & 3u];
        rest = rest / size;
        if (FILL == REFLECT) {
            index = extent - 1 - abs(extent - 1 - abs(index));
        } else if (FILL == REPLICATE) {
            index = clamp(index, 0, extent - 1);
        }
        inside = inside && index >= 0 && index < extent;
        source += index * stride;
        stride *= extent;
    }
    if (inside) {
        out[i] = x[u32(source)];
    } else if (INTEGER) {
        out[i] = T(i32(params.high) * 65536 + i32(params.low));
    } else {
        out[i] = T(params.low);
    }
}

#include common/each_in_runs
