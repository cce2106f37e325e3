// out[outer, at, :] += the sum of values[outer, pick, :] over every pick with index[pick] == at, in order: one thread
// per element of out, because WGSL adds floats atomically nowhere.
override WG: u32 = 64;

struct Params {
    count: u32,
    picks: u32,
    inner: u32,
    size: u32,
    rank: u32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> index: array<i32>;
@group(0) @binding(2) var<storage, read> values: array<T>;
@group(0) @binding(3) var<uniform> params: Params;

// include walk

fn each(i: u32) {
    let row = i / params.inner;
    let at = i32(row % params.size);
    let outer = row / params.size;
    var sum = T_math(out[i]);
    for (var pick = 0u; pick < params.picks; pick++) {
        if (index[pick] == at) {
            sum += T_math(values[walk((outer * params.picks + pick) * params.inner + i % params.inner)]);
        }
    }
    out[i] = T(sum);
}

// include each
