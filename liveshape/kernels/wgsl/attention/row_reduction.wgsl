// What the threads of a row know together: by shuffles where they are in one subgroup, else through memory that their
// weights use later. When it is known, all of the workgroup have multiplied their keys.
#choice ROW_REDUCTION: memory, shuffles
#if ROW_REDUCTION == shuffles
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
#else
fn put_known(row_thread: u32, key_thread: u32, known: Held) {
    var own = known;
    for (var h = 0u; h < HELD_FOURS; h++) {
        weights[weight_place(key_thread, row_thread + h * ROW_THREADS)] = own[h];
    }
    workgroupBarrier();
}

fn highest_together(row_thread: u32, key_thread: u32, known: Held) -> Held {
    put_known(row_thread, key_thread, known);
    var highest = known;
    for (var h = 0u; h < HELD_FOURS; h++) {
        for (var t = 0u; t < KEY_THREADS; t++) {
            highest[h] = max(highest[h], weights[weight_place(t, row_thread + h * ROW_THREADS)]);
        }
    }
    workgroupBarrier();
    return highest;
}

fn total_together(row_thread: u32, key_thread: u32, known: Held) -> Held {
    workgroupBarrier();
    put_known(row_thread, key_thread, known);
    var total: Held;
    for (var h = 0u; h < HELD_FOURS; h++) {
        for (var t = 0u; t < KEY_THREADS; t++) {
            total[h] += weights[weight_place(t, row_thread + h * ROW_THREADS)];
        }
    }
    return total;
}
#endif
