// One thread per line: the running total, or product, of elements that lie `inner` apart, in the wide type of the
// output.
override WG: u32 = 64;
override PRODUCT: bool = false;

struct Params {
    count: u32,
    length: u32,
    inner: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<TOut>;
@group(0) @binding(1) var<storage, read> x: array<TIn>;
@group(0) @binding(2) var<uniform> params: Params;

fn each(line: u32) {
    let start = (line / params.inner) * params.length * params.inner + line % params.inner;
    var total = select(TOut_math(0), TOut_math(1), PRODUCT);
    for (var i = 0u; i < params.length; i++) {
        let element = TOut_math(x[start + i * params.inner]);
        total = select(total + element, total * element, PRODUCT);
        out[start + i * params.inner] = TOut(total);
    }
}

#include common/each
