// Reductions over the threads of a row: by shuffles where they are in one subgroup, else through memory that their
// weights use later. Both are barriers: after them all of the workgroup have multiplied their keys.
#choice ROW_REDUCTION: memory, shuffles
#if ROW_REDUCTION == shuffles
fn row_maximum(row_thread: u32, key_thread: u32, partials: ThreadRows) -> ThreadRows {
    var maximum = partials;
    for (var step = 1u; step < KEY_THREADS; step *= 2u) {
        for (var h = 0u; h < THREAD_ROW_VEC4S; h++) {
            maximum[h] = max(maximum[h], subgroupShuffleXor(maximum[h], step));
        }
    }
    workgroupBarrier();
    return maximum;
}

fn row_sum(row_thread: u32, key_thread: u32, partials: ThreadRows) -> ThreadRows {
    var total = partials;
    for (var step = 1u; step < KEY_THREADS; step *= 2u) {
        for (var h = 0u; h < THREAD_ROW_VEC4S; h++) {
            total[h] += subgroupShuffleXor(total[h], step);
        }
    }
    return total;
}
#else
fn exchange(row_thread: u32, key_thread: u32, partials: ThreadRows) {
    var own = partials;
    for (var h = 0u; h < THREAD_ROW_VEC4S; h++) {
        weights[weight_place(key_thread, row_thread + h * ROW_THREADS)] = own[h];
    }
    workgroupBarrier();
}

fn row_maximum(row_thread: u32, key_thread: u32, partials: ThreadRows) -> ThreadRows {
    exchange(row_thread, key_thread, partials);
    var maximum = partials;
    for (var h = 0u; h < THREAD_ROW_VEC4S; h++) {
        for (var t = 0u; t < KEY_THREADS; t++) {
            maximum[h] = max(maximum[h], weights[weight_place(t, row_thread + h * ROW_THREADS)]);
        }
    }
    workgroupBarrier();
    return maximum;
}

fn row_sum(row_thread: u32, key_thread: u32, partials: ThreadRows) -> ThreadRows {
    workgroupBarrier();
    exchange(row_thread, key_thread, partials);
    var total: ThreadRows;
    for (var h = 0u; h < THREAD_ROW_VEC4S; h++) {
        for (var t = 0u; t < KEY_THREADS; t++) {
            total[h] += weights[weight_place(t, row_thread + h * ROW_THREADS)];
        }
    }
    return total;
}
#endif
