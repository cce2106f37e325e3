// What an OP makes of Totals, which the includer says, vectors or not; an Element becomes one, and Bits are those of one.
override OP: u32 = 0;
override FLOATS: bool = true;

const SUM = 0u;
const MEAN = 1u;
const PRODUCT = 2u;
const ANY = 3u;
const ALL = 4u;
const VARIANCE = 5u;
const MAXIMUM = 6u; // these two have no identity, and a NaN is what they find
const MINIMUM = 7u;
const EXTREMUM = OP == MAXIMUM || OP == MINIMUM;

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
    if (EXTREMUM) {
        let better = select(b > a, b < a, OP == MINIMUM);
        let before = (bitcast<Bits>(a) & Bits(0x7fffffffu)) > Bits(0x7f800000u);
        let found = (bitcast<Bits>(b) & Bits(0x7fffffffu)) > Bits(0x7f800000u);
        return select(a, b, select(better, (better | found) & !before, FLOATS));
    }
    return a + b;
}

fn total_of(value: Element) -> Total {
    if (OP == ANY || OP == ALL) {
        return select(Total(1), Total(0), value == Element(0)); // a NaN equals nothing, so it counts as true
    }
    return Total(value);
}
