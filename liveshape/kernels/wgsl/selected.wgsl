// out[outer, i, inner] = x[outer, the element that number i of what was counted belongs to, inner], x broadcast.
override WG: u32 = 64;

struct Params {
    count: u32,
    size: u32,
    span: u32,
    picks: u32,
    inner: u32,
    rank: u32,
    sizes: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<T>;
@group(0) @binding(2) var<storage, read> sums: array<i32>;
@group(0) @binding(3) var<storage, read> totals: array<i32>;
@group(0) @binding(4) var<uniform> params: Params;

// include counted
// include walk

fn each(i: u32) {
    let row = i / params.inner;
    let at = (row / params.picks) * params.size + element_of(row % params.picks);
    out[i] = x[walk(at * params.inner + i % params.inner)];
}

// include each
