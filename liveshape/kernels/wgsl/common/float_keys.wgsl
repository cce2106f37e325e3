// A float as a number of 32 bits that orders like it; the two zeros are equal, and a NaN is above everything.
const NAN_KEY = 0xffffffffu;

fn key_of(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return NAN_KEY;
    }
    let known = select(bits, 0u, bits == 0x80000000u);
    return select(known | 0x80000000u, ~known, known > 0x80000000u);
}
