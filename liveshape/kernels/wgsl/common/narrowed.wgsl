// What halves can hold, and NaN instead of anything else: an infinity could vanish in what follows, and a NaN does not.
var<private> nothing_bits: u32 = 0x7fc00000u; // a constant expression may be no NaN

fn narrowed(x: vec4<f32>) -> vec4<f32> {
    return select(x, vec4<f32>(bitcast<f32>(nothing_bits)), abs(x) > vec4<f32>(65504.0));
}
