// out[outer, i, inner] = x[outer, n, inner], x broadcast, where i is number n of what was counted; the rest stays.
#include compaction/counted_operands

fn each(i: u32) {
    let row = i / params.inner;
    let at = row % params.size;
    var before = 0u;
    if (at > 0u) {
        before = counted(at - 1u);
    }
    if (counted(at) > before) {
        let pick = (row / params.size) * params.picks + min(before, params.picks - 1u);
        out[i] = x[walk(pick * params.inner + i % params.inner)];
    }
}

#include common/each_in_runs
