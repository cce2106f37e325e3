// out = condition ? a : b over the shape that the three broadcast to, four elements a thread.
#include elementwise/broadcast
override WG: u32 = 64;
override PER_ELEMENT: bool = false; // four neighbours may lie in two rows, so each is looked up by itself

struct Params {
    count: u32,
    rank: u32,
    dims: array<vec4<u32>, 8>,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<TOut>>;
@group(0) @binding(1) var<storage, read> condition: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> a: array<vec4<TA>>;
@group(0) @binding(3) var<storage, read> b: array<vec4<TB>>;
@group(0) @binding(4) var<uniform> params: Params;

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
    var choice: vec4<u32>;
    var left: vec4<TA>;
    var right: vec4<TB>;
    if (PER_ELEMENT) {
        for (var k = 0u; k < 4u; k++) {
            let at = offsets(min(4u * i + k, params.count - 1u));
            choice[k] = condition[at.x >> 2u][at.x & 3u];
            left[k] = a[at.y >> 2u][at.y & 3u];
            right[k] = b[at.z >> 2u][at.z & 3u];
        }
    } else {
        let at = offsets(4u * i);
        let steps = inner_steps();
        if (steps.x == 1u) {
            choice = condition[at.x >> 2u];
        } else {
            choice = vec4<u32>(condition[at.x >> 2u][at.x & 3u]);
        }
        if (steps.y == 1u) {
            left = a[at.y >> 2u];
        } else {
            left = vec4<TA>(a[at.y >> 2u][at.y & 3u]);
        }
        if (steps.z == 1u) {
            right = b[at.z >> 2u];
        } else {
            right = vec4<TB>(b[at.z >> 2u][at.z & 3u]);
        }
    }
    out[i] = select(vec4<TOut>(right), vec4<TOut>(left), choice != vec4<u32>(0u));
}
