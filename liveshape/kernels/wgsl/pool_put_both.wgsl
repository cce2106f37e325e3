// The greatest element of a window, and where it lies in its plane.
@group(0) @binding(2) var<storage, read_write> indices: array<i32>;
@group(0) @binding(3) var<uniform> params: Params;

fn put(i: u32, found: Found, inside: vec3<i32>, padded: vec3<i32>) {
    out[i] = T(found.value);
    indices[i] = found.index;
}
