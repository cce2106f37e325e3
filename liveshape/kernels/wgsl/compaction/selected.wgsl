// out[outer, i, inner] = x[outer, the element that number i of what was counted belongs to, inner], x broadcast.
#include compaction/counted_operands

fn each(i: u32) {
    let row = i / params.inner;
    let at = (row / params.picks) * params.size + element_of(row % params.picks);
    out[i] = x[walk(at * params.inner + i % params.inner)];
}

#include common/each_in_runs
