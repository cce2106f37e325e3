// The largest numbers, four at a time, that `count` threads of a workgroup have, each `pitch` after the one before: a
// thread is the i-th of them.
var<workgroup> largest_of: array<vec4<f32>, WG>;

fn largest(thread: u32, i: u32, count: u32, pitch: u32, mine: vec4<f32>) -> vec4<f32> {
    largest_of[thread] = mine;
    for (var half = count / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (i < half) {
            largest_of[thread] = max(largest_of[thread], largest_of[thread + half * pitch]);
        }
    }
    workgroupBarrier();
    let found = largest_of[thread - i * pitch];
    workgroupBarrier();
    return found;
}

fn largest_of_four(four: vec4<f32>) -> f32 {
    return max(max(four.x, four.y), max(four.z, four.w));
}
