// The log-sum-exp of what a thread has of a part, whose elements lie `pitch` apart; by blocks, as reduction/parts.wgsl
// has it. The includer says what an `element` is.
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
