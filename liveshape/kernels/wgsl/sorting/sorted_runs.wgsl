// How many of the `count` sorted keys from `first` on go before `key`: those below it, and its `equals` where asked.
// The includer says what `key_at` is.
fn ahead_of(key: u32, first: u32, count: u32, equals: bool) -> u32 {
    var low = 0u;
    var high = count;
    while (low < high) {
        let middle = (low + high) / 2u;
        let other = key_at(first + middle);
        if (other < key || (equals && other == key)) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}
