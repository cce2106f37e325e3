// out = a (OP) alpha * b, element by element, four at a time.
override WG: u32 = 64;
override OP: u32 = 0;

struct Params {
    vectors: u32,
    alpha: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<T>>;
@group(0) @binding(1) var<storage, read> a: array<vec4<T>>;
@group(0) @binding(2) var<storage, read> b: array<vec4<T>>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_index(group, grid) * WG + lane;
    if (i >= params.vectors) {
        return;
    }
    out[i] = vec4<T>(vec4<T_math>(a[i]) + vec4<T_math>(b[i]) * T_math(params.alpha));
}
