// What a thread has of a unit of reduction/across_threads.wgsl, from its element `first` on. The includer says what an
// `identity` is, and what an element of a unit that begins at `start` is `total_at`.
#include reduction/block

fn own_total(thread: u32, start: u32, first: u32, last: u32) -> Total {
    var total = identity();
    for (var begin = first + member_of(thread); begin < last; begin += BLOCK * COOPERATING) {
        var block = identity();
        for (var j = begin; j < min(begin + BLOCK * COOPERATING, last); j += COOPERATING) {
            block = combine(block, total_at(start, j));
        }
        total = combine(total, block);
    }
    return total;
}
