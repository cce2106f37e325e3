// Log-sum-exp that does not overflow (online softmax): the maximum m of a row, and the sum of exp(x - m). Long rows go in
// two stages: that of PARTS, then RESULTS by these.
#choice STAGE: rows, parts, results
const LOWEST: f32 = -3.4028234e38; // not -inf: the difference of two of them would be NaN

alias Total = vec2<f32>;

fn identity() -> Total {
    return Total(LOWEST, 0.0);
}

fn combine(a: Total, b: Total) -> Total {
    let maximum = max(a.x, b.x);
    return Total(maximum, a.y * exp(a.x - maximum) + b.y * exp(b.x - maximum));
}

#include reduction/block
#include reduction/own_total

fn total_at(start: u32, j: u32) -> Total {
    return Total(element(start, j), 1.0);
}

// Of the row that begins at `start`, or in PARTS of one of its own.
fn log_sum_exp(part: Part, thread: u32, start: u32) -> Total {
#if STAGE == results
    var total = identity();
    for (var each = member_of(thread); each < params.parts; each += COOPERATING) {
        total = combine(total, totals[each * params.units + part.unit]);
    }
    return reduce_unit(thread, total);
#else
    return reduce_unit(thread, own_total(part, thread, start));
#endif
}
