// Throughput of dot products of 8-bit integers, four to a word: each iteration is 128 operations, in eight chains.
override WG: u32 = 256;

struct Params {
    count: u32, // threads
    iterations: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<i32>;

fn more(sum: i32, other: u32) -> i32 {
    return sum + dot4I8Packed(bitcast<u32>(sum), other);
}

fn each(i: u32) {
    let other = i * 2654435761u;
    let first = bitcast<i32>(i);
    var a = first;
    var b = first + 1;
    var c = first + 2;
    var d = first + 3;
    var e = first + 4;
    var f = first + 5;
    var g = first + 6;
    var h = first + 7;
    for (var n = 0u; n < params.iterations; n++) {
        a = more(a, other);
        b = more(b, other);
        c = more(c, other);
        d = more(d, other);
        e = more(e, other);
        f = more(f, other);
        g = more(g, other);
        h = more(h, other);
        a = more(a, other);
        b = more(b, other);
        c = more(c, other);
        d = more(d, other);
        e = more(e, other);
        f = more(f, other);
        g = more(g, other);
        h = more(h, other);
    }
    out[i] = a + b + c + d + e + f + g + h;
}

#include common/each
