// What the threads of a row know together where they are neighbours that hand each other values. When it is known, all
// of the workgroup have multiplied their keys.

fn highest_together(row_thread: u32, key_thread: u32, known: Held) -> Held {
    var highest = known;
    for (var step = 1u; step < KEY_THREADS; step *= 2u) {
        for (var h = 0u; h < HELD_FOURS; h++) {
            highest[h] = max(highest[h], subgroupShuffleXor(highest[h], step));
        }
    }
    workgroupBarrier();
    return highest;
}

fn total_together(row_thread: u32, key_thread: u32, known: Held) -> Held {
    var total = known;
    for (var step = 1u; step < KEY_THREADS; step *= 2u) {
        for (var h = 0u; h < HELD_FOURS; h++) {
            total[h] += subgroupShuffleXor(total[h], step);
        }
    }
    return total;
}
