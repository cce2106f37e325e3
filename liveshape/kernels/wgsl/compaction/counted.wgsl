// What the prefix sums of compaction/prefix_sums.wgsl counted among `size` elements, in spans of `span`.
fn counted(i: u32) -> u32 {
    let span = i / params.span;
    var before = 0;
    if (span > 0u) {
        before = totals[span - 1u];
    }
    return u32(before + sums[i]);
}

// The element that number `place` of all that was counted, from zero on, belongs to.
fn element_of(place: u32) -> u32 {
    var low = 0u;
    var high = params.size;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (counted(middle) > place) {
            high = middle;
        } else {
            low = middle + 1u;
        }
    }
    return low;
}
