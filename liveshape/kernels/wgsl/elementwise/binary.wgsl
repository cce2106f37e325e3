// out = OP(a, b) over the shape that a and b broadcast to, four elements a thread.
#include elementwise/broadcast
#include elementwise/special_functions
#include elementwise/binary_functions
override WG: u32 = 64;
override OP: u32 = ADD;
override INTEGER: bool = false; // whole numbers are computed in i32, all others in f32
override PER_ELEMENT: bool = false; // four neighbours may lie in two rows, so each is looked up by itself

struct Params {
    count: u32,
    rank: u32,
    alpha: f32,
    whole_alpha: i32,
    dims: array<vec4<u32>, 8>,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> a: array<vec4<TA>>;
@group(0) @binding(2) var<storage, read> b: array<vec4<TB>>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, grid) * WG + thread;
    if (i > (params.count - 1u) / 4u) {
        return;
    }
    var left: vec4<TA>;
    var right: vec4<TB>;
    if (PER_ELEMENT) {
        for (var k = 0u; k < 4u; k++) {
            let at = offsets(min(4u * i + k, params.count - 1u));
            left[k] = a[at.x >> 2u][at.x & 3u];
            right[k] = b[at.y >> 2u][at.y & 3u];
        }
    } else {
        let at = offsets(4u * i);
        let steps = inner_steps();
        if (steps.x == 1u) {
            left = a[at.x >> 2u];
        } else {
            left = vec4<TA>(a[at.x >> 2u][at.x & 3u]);
        }
        if (steps.y == 1u) {
            right = b[at.y >> 2u];
        } else {
            right = vec4<TB>(b[at.y >> 2u][at.y & 3u]);
        }
    }
    if (INTEGER) {
        out[i] = vec4<TOut>(of_wholes(vec4<i32>(left), vec4<i32>(right), params.whole_alpha));
    } else {
        out[i] = vec4<TOut>(of_floats(vec4<f32>(left), vec4<f32>(right), params.alpha));
    }
}
