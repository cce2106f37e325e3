// What a thread has of a part, in blocks of BLOCK. The includer says what an `identity` is, and what an element of a unit
// that begins at `start` is `total_at`.
#include reduction/parts

fn own_total(part: Part, thread: u32, start: u32) -> Total {
    var total = identity();
    for (var first = part.first + member_of(thread); first < part.last; first += BLOCK * COOPERATING) {
        let end = min(first + BLOCK * COOPERATING, part.last);
        var block = identity();
        for (var j = first; j < end; j += COOPERATING) {
            block = combine(block, total_at(start, j));
        }
        total = combine(total, block);
    }
    return total;
}
