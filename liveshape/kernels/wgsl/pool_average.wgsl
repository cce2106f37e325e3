// The average of a window, by the elements in it, by these and the padding, or by a number.
const INSIDE = 0u;
const PADDED = 1u;
const GIVEN = 2u;
override DIVISOR: u32 = INSIDE;

@group(0) @binding(2) var<uniform> params: Params;

alias Found = T_math;

fn nothing(first: i32) -> Found {
    return Found(0);
}

fn look(found: Found, value: T_math, index: i32) -> Found {
    return found + value;
}

fn put(i: u32, found: Found, inside: vec3<i32>, padded: vec3<i32>) {
    let extent = select(inside, padded, DIVISOR == PADDED);
    let divisor = select(extent.x * extent.y * extent.z, params.divisor, DIVISOR == GIVEN);
    out[i] = T(found / T_math(divisor));
}
