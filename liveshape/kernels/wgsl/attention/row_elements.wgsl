// Four neighbours of a query in f32, zero beyond the head, and those of a result, one element at a time.
#include attention/head_width

fn query_four(place: u32, four: u32) -> vec4<f32> {
    var result = vec4<f32>();
    for (var i = 0u; i < key_width_of(four); i++) {
        result[i] = f32(queries[place + four * 4u + i]);
    }
    return result * params.scale;
}

fn store(place: u32, four: u32, value: vec4<f32>) {
    for (var i = 0u; i < value_width_of(four); i++) {
        out[place + four * 4u + i] = TOut(value[i]);
    }
}
