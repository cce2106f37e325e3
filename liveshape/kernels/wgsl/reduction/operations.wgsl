// What an OP makes of Totals, which the includer says, vectors or not; an Element becomes one.
override OP: u32 = 0;

const SUM = 0u;
const MEAN = 1u;
const PRODUCT = 2u;
const ANY = 3u;
const ALL = 4u;
const VARIANCE = 5u;

fn identity() -> Total {
    return select(Total(0), Total(1), OP == PRODUCT || OP == ALL);
}

fn combine(a: Total, b: Total) -> Total {
    if (OP == PRODUCT || OP == ALL) {
        return a * b;
    }
    if (OP == ANY) {
        return max(a, b);
    }
    return a + b;
}

fn total_of(value: Element) -> Total {
    if (OP == ANY || OP == ALL) {
        return select(Total(1), Total(0), value == Element(0)); // a NaN equals nothing, so it counts as true
    }
    return Total(value);
}
