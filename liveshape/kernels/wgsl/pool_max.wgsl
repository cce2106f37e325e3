// The greatest element of a window, the first of equals; a NaN is above every number, and the last NaN stays.
override WHOLE: bool = false; // whole numbers compare as they are, all others by their keys

// include float_keys

struct Found {
    value: T_math,
    key: u32,
    index: i32,
}

fn nothing(first: i32) -> Found {
    return Found(T_math(params.lowest), 0u, first);
}

fn look(found: Found, value: T_math, index: i32) -> Found {
    if (WHOLE) {
        if (value > found.value) {
            return Found(value, 0u, index);
        }
        return found;
    }
    let key = key_of(f32(value));
    if (key > found.key || key == NAN_KEY) {
        return Found(value, key, index);
    }
    return found;
}

// include pool_put_value
