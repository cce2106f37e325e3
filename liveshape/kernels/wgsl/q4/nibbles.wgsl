// A nibble in the mantissa of 2^23 is a float without a conversion; converting is slower than all else on some devices.
fn four_of(nibbles: u32) -> vec4<f32> {
    let masked = (vec4<u32>(nibbles) & vec4<u32>(0xfu, 0xf0u, 0xf00u, 0xf000u)) | vec4<u32>(0x4b000000u);
    return fma(
        bitcast<vec4<f32>>(masked),
        vec4<f32>(1.0, 0.0625, 0.00390625, 0.000244140625),
        vec4<f32>(-8388616.0, -524296.0, -32776.0, -2056.0),
    );
}
