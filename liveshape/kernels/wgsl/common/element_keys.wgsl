// An element as a number of 32 bits that orders like it, whatever its KIND; a NaN is above every number.
override KIND: u32 = 0;

const FLOAT = 0u;
const SIGNED = 1u;

#include common/float_keys

fn element_key(value: T_math) -> u32 {
    if (KIND == FLOAT) {
        return key_of(f32(value));
    }
    let bits = bitcast<u32>(value);
    return select(bits, bits ^ 0x80000000u, KIND == SIGNED);
}

// The same, falling where the `least` is the best; a NaN is the best whichever is asked for.
fn extreme_key(value: T_math, least: bool) -> u32 {
    let key = element_key(value);
    return select(key, ~key, least && !(KIND == FLOAT && key == NAN_KEY));
}
