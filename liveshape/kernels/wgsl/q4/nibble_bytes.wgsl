// The nibbles of a word, four even places of the depth and four odd ones, each as the bytes of a word.
override ASYMMETRIC: bool = false; // whether quantized rows have a zero point

const ONES: u32 = 0x01010101u;
const NIBBLES: vec4<u32> = vec4<u32>(0x0f0f0f0fu);
const EVEN_BYTES: vec4<u32> = vec4<u32>(0x00ff00ffu);
const ODD_BYTES: vec4<u32> = vec4<u32>(0xff00ff00u);

fn groups() -> u32 {
    return params.depth / 32u;
}

fn evens(words: vec4<u32>) -> vec4<u32> {
    return select(words, words >> vec4<u32>(4u), HIGH_FIRST) & NIBBLES;
}

fn odds(words: vec4<u32>) -> vec4<u32> {
    return select(words >> vec4<u32>(4u), words, HIGH_FIRST) & NIBBLES;
}
