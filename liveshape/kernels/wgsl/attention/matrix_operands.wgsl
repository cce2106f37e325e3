// The queries, keys and values of attention/matrix_tiles.wgsl, eight neighbours of a head at a time: as they are read, and
// where keys and values are staged for all of a workgroup.
#choice CACHE: contiguous, paged
#choice HALVES: made, given
#include quantization/half_exponent

const MATRIX: u32 = 16; // rows, columns and depth
const EIGHTS: u32 = (HEAD_SIZE + MATRIX - 1) / MATRIX * MATRIX / 8; // of a head, with zeros up to whole matrices
const WHOLE_MATRICES: bool = HEAD_SIZE % MATRIX == 0;
const PITCH: u32 = EIGHTS + 1; // one more, so that rows begin in different banks
const VALUES_AT: u32 = KEYS * PITCH;

var<workgroup> tile: array<vec4<u32>, 2 * KEYS * PITCH>; // keys, then values
#if CACHE == paged
var<workgroup> largest_of: array<vec4<f32>, WG / LANES>; // of the keys and the values of the next step
#endif

// Eight neighbours in floats.
struct EightFloats {
    low: vec4<f32>,
    high: vec4<f32>,
}

fn largest(eight: EightFloats) -> f32 {
    let four = max(abs(eight.low), abs(eight.high));
    return max(max(four.x, four.y), max(four.z, four.w));
}

fn halved(eight: EightFloats, inverse: f32) -> vec4<u32> {
    return eight_halves(eight.low * inverse, eight.high * inverse);
}

// Past a step, where threads are not a divisor of it, its last load again.
fn load_of(thread: u32) -> u32 {
    return min(thread, KEYS * EIGHTS - 1u);
}

fn staged(load: u32) -> u32 {
    return load / EIGHTS * PITCH + load % EIGHTS;
}

// Values lie in the order of their weights: a thread has the first fours of a matrix, and the third, or the other two.
fn staged_value(load: u32) -> u32 {
    let key = load / EIGHTS;
    let place = (key & ~12u) | ((key & 4u) << 1u) | ((key & 8u) >> 1u);
    return VALUES_AT + place * PITCH + load % EIGHTS;
}

#if HALVES == given
fn query_eight(place: u32, eight: u32) -> vec4<u32> {
    if (KEY_SIZE < EIGHTS * 8u && eight * 8u >= KEY_SIZE) {
        return vec4<u32>();
    }
    return queries[place / 8u + eight];
}
#else
fn query_eight(place: u32, eight: u32) -> EightFloats {
    if (!WHOLE_MATRICES && eight * 8u >= HEAD_SIZE) {
        return EightFloats();
    }
    return EightFloats(query_four(place, eight * 2u), query_four(place, eight * 2u + 1u));
}
#endif

// Eight neighbours of keys, and of values, as a load of the step from a key on brings them, and what the step's were
// divided by where that is known before.
#if CACHE == paged
alias Eight = EightFloats;

fn key_eight(unit: Unit, key: u32, last_key: u32, load: u32) -> Eight {
    if (!WHOLE_MATRICES && load % EIGHTS * 8u >= HEAD_SIZE) {
        return Eight();
    }
    let place = key_place(unit, min(key + load / EIGHTS, last_key - 1u));
    return Eight(key_four(place, load % EIGHTS * 2u), key_four(place, load % EIGHTS * 2u + 1u));
}

fn value_eight(unit: Unit, key: u32, last_key: u32, load: u32) -> Eight {
    if (!WHOLE_MATRICES && load % EIGHTS * 8u >= HEAD_SIZE) {
        return Eight();
    }
    let place = key_place(unit, min(key + load / EIGHTS, last_key - 1u));
    return Eight(value_four(place, load % EIGHTS * 2u), value_four(place, load % EIGHTS * 2u + 1u));
}
#elif HALVES == given
alias Eight = vec4<u32>;

fn key_eight(unit: Unit, key: u32, last_key: u32, load: u32) -> Eight {
    if (KEY_SIZE < EIGHTS * 8u && load % EIGHTS * 8u >= KEY_SIZE) {
        return Eight();
    }
    let first = params.key_start + unit.batch * params.key_batch + unit.head * params.key_head;
    return keys[first + min(key + load / EIGHTS, last_key - 1u) * params.key_row + load % EIGHTS];
}

fn value_eight(unit: Unit, key: u32, last_key: u32, load: u32) -> Eight {
    if (VALUE_SIZE < EIGHTS * 8u && load % EIGHTS * 8u >= VALUE_SIZE) {
        return Eight();
    }
    let first = params.value_start + unit.batch * params.value_batch + unit.head * params.value_head;
    return values[first + min(key + load / EIGHTS, last_key - 1u) * params.value_row + load % EIGHTS];
}

fn factors_of(unit: Unit, key: u32, last_key: u32) -> vec2<f32> {
    return vec2<f32>(1.0);
}
#else
alias Eight = vec4<u32>;

fn tile_of(unit: Unit, key: u32, last_key: u32) -> u32 {
    let one_cache = params.key_batch == 0u && params.value_batch == 0u;
    let head = select(unit.batch, 0u, one_cache) * params.key_heads + unit.head;
    return head * ((params.context + KEYS - 1u) / KEYS) + min(key, last_key - 1u) / KEYS;
}

fn key_eight(unit: Unit, key: u32, last_key: u32, load: u32) -> Eight {
    return halves[tile_of(unit, key, last_key) * 2u * KEYS * EIGHTS + load];
}

fn value_eight(unit: Unit, key: u32, last_key: u32, load: u32) -> Eight {
    return halves[(tile_of(unit, key, last_key) * 2u + 1u) * KEYS * EIGHTS + load];
}

fn factors_of(unit: Unit, key: u32, last_key: u32) -> vec2<f32> {
    return factors[tile_of(unit, key, last_key)];
}
#endif

