// Four neighbours of a query in f32 at once: rows begin at a multiple of four.
fn query_four(place: u32, four: u32) -> vec4<f32> {
    if (KEY_SIZE < HEAD_SIZE && four * 4u >= KEY_SIZE) {
        return vec4<f32>();
    }
    return vec4<f32>(queries[place / 4u + four]) * params.scale;
}

#include attention/store_fours
