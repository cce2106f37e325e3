// out[outer, i, inner] = values[outer, n, inner], values broadcast, where i is number n of what was counted; the rest stays.
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
@group(0) @binding(1) var<storage, read> values: array<T>;
@group(0) @binding(2) var<storage, read> sums: array<i32>;
@group(0) @binding(3) var<storage, read> totals: array<i32>;
@group(0) @binding(4) var<uniform> params: Params;

// include counted
// include walk

fn each(i: u32) {
    let row = i / params.inner;
    let at = row % params.size;
    var before = 0u;
    if (at > 0u) {
        before = counted(at - 1u);
    }
    if (counted(at) > before) {
        let pick = (row / params.size) * params.picks + min(before, params.picks - 1u);
        out[i] = values[walk(pick * params.inner + i % params.inner)];
    }
}

// include each
