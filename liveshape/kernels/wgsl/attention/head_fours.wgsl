// Four neighbours of a key or a value in f32, zero beyond the head.
#include attention/head_width

fn key_four(place: u32, four: u32) -> vec4<f32> {
    if (V_lanes == 4u) {
        let whole = V_math(keys[place + four]);
        return vec4<f32>(V_at(whole, 0u), V_at(whole, 1u), V_at(whole, 2u), V_at(whole, 3u));
    }
    var result = vec4<f32>();
    for (var i = 0u; i < width_of(four); i++) {
        result[i] = V_at(V_math(keys[place + four * 4u + i]), 0u);
    }
    return result;
}

fn value_four(place: u32, four: u32) -> vec4<f32> {
    if (V_lanes == 4u) {
        let whole = V_math(values[place + four]);
        return vec4<f32>(V_at(whole, 0u), V_at(whole, 1u), V_at(whole, 2u), V_at(whole, 3u));
    }
    var result = vec4<f32>();
    for (var i = 0u; i < width_of(four); i++) {
        result[i] = V_at(V_math(values[place + four * 4u + i]), 0u);
    }
    return result;
}
