// pcg3d of Jarzynski and Olano, "Hash Functions for GPU Rendering": a counter in, a random number out.
fn random(counter: vec3<u32>) -> u32 {
    var v = counter * 1664525u + 1013904223u;
    v.x += v.y * v.z;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v ^= v >> vec3<u32>(16u);
    v.x += v.y * v.z;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    return v.x;
}
