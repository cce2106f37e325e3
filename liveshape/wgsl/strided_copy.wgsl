// out[target + i . target_strides] = x[source + i . source_strides] for every index i of `sizes`.
override WG: u32 = 64;

struct Params {
    count: u32,
    rank: u32,
    source: i32,
    target: i32,
    sizes: array<vec4<u32>, 2>,
    source_strides: array<vec4<i32>, 2>,
    target_strides: array<vec4<i32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, grid) * WG + lane;
    if (i >= params.count) {
        return;
    }
    var rest = i;
    var source = params.source;
    var destination = params.target;
    for (var axis = params.rank; axis > 0u; axis--) {
        let dim = axis - 1u;
        let size = params.sizes[dim >> 2u][dim & 3u];
        let index = i32(rest % size);
        rest = rest / size;
        source += index * params.source_strides[dim >> 2u][dim & 3u];
        destination += index * params.target_strides[dim >> 2u][dim & 3u];
    }
    out[u32(destination)] = x[u32(source)];
}
