// Integers of eight bits, four to a word. A byte moved to the top of its word and back brings its sign along.
fn signed_byte(word: u32, place: u32) -> i32 {
    return bitcast<i32>(word << (24u - place * 8u)) >> 24u;
}

fn signed_bytes(word: u32) -> vec4<i32> {
    return bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
}

fn unsigned_bytes(word: u32) -> vec4<i32> {
    return bitcast<vec4<i32>>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu));
}

fn packed(four: vec4<i32>) -> u32 {
    let bytes = (bitcast<vec4<u32>>(four) & vec4<u32>(0xffu)) << vec4<u32>(0u, 8u, 16u, 24u);
    return bytes.x | bytes.y | bytes.z | bytes.w;
}

// The first `count` bytes of a word; the others are zero.
fn first_bytes(word: u32, count: u32) -> u32 {
    return select(word & ((1u << (count * 8u)) - 1u), word, count >= 4u);
}
