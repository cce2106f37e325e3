// Log-sum-exp that does not overflow (online softmax) of `x`, or of partial results, as reduction/parts.wgsl has them.
#choice OF: elements, partials
const LOWEST: f32 = -3.4028234e38; // not -inf: the difference of two of them would be NaN
const EMPTY: Total = Total(LOWEST, 0.0);

alias Total = vec2<f32>; // (maximum m, sum of exp(x - m))

fn combine(a: Total, b: Total) -> Total {
    let maximum = max(a.x, b.x);
    return Total(maximum, a.y * exp(a.x - maximum) + b.y * exp(b.x - maximum));
}

#include reduction/across_threads
#include reduction/parts

fn element(at: u32) -> Total {
#if OF == elements
    return Total(f32(x[at]), 1.0);
#else
    return x[at];
#endif
}

// What a thread has of a part, whose elements lie `pitch` apart; by blocks, whose sums are added.
fn own_total(part: Part, thread: u32, start: u32, pitch: u32) -> Total {
    var mine = EMPTY;
    for (var first = part.first + member_of(thread); first < part.last; first += BLOCK * COOPERATING) {
        var block = EMPTY;
        for (var j = first; j < min(first + BLOCK * COOPERATING, part.last); j += COOPERATING) {
            block = combine(block, element(start + j * pitch));
        }
        mine = combine(mine, block);
    }
    return mine;
}
