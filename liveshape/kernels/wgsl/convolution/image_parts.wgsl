// The largest number of each part of the images, for convolution/half_image.wgsl: a workgroup a part, its vectors one in
// so many of all.
// scratch largest_of_parts
// unchecked: vectors are those of the tensor, which planning checked.
// T: f32
override WG: u32 = 256;

struct Params {
    vectors: u32,
    parts: u32,
}
@group(0) @binding(0) var<storage, read_write> largest_of_parts: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<V>;

#include quantization/largest

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let part = group_index(group, grid);
    if (part >= params.parts) {
        return;
    }
    var most = 0.0;
    for (var i = part * WG + thread; i < params.vectors; i += params.parts * WG) {
        for (var lane = 0u; lane < V_lanes; lane++) {
            most = max(most, abs(V_at(V_math(x[i]), lane)));
        }
    }
    let found = largest(thread, thread, WG, 1u, vec4<f32>(most));
    if (thread == 0u) {
        largest_of_parts[part] = found.x;
    }
}
