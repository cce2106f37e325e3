// Four neighbours of a key or a value in f32, zero beyond the head.
#include attention/head_width

fn key_four(place: u32, four: u32) -> vec4<f32> {
    if (KEY_SIZE < HEAD_SIZE && four * 4u >= KEY_SIZE) {
        return vec4<f32>();
    }
    if (V_lanes == 4u) {
        let whole = V_math(keys[place + four]);
        return vec4<f32>(V_at(whole, 0u), V_at(whole, 1u), V_at(whole, 2u), V_at(whole, 3u));
    }
    var result = vec4<f32>();
    for (var i = 0u; i < key_width_of(four); i++) {
        result[i] = V_at(V_math(keys[place + four * 4u + i]), 0u);
    }
    return result;
}

fn value_four(place: u32, four: u32) -> vec4<f32> {
    if (VALUE_SIZE < HEAD_SIZE && four * 4u >= VALUE_SIZE) {
        return vec4<f32>();
    }
    if (V_lanes == 4u) {
        let whole = V_math(values[place + four]);
        return vec4<f32>(V_at(whole, 0u), V_at(whole, 1u), V_at(whole, 2u), V_at(whole, 3u));
    }
    var result = vec4<f32>();
    for (var i = 0u; i < value_width_of(four); i++) {
        result[i] = V_at(V_math(values[place + four * 4u + i]), 0u);
    }
    return result;
}
