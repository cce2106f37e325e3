// What kernels share that go from elements to what was counted, or back: operands, counts and a broadcast x.
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

#include compaction/counted
#include movement/walk
