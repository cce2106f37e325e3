// The clamp that may follow a sum. NaN stays, whatever the driver's min() and max() make of it.
override CLAMP: bool = false;

fn clamped(value: f32) -> f32 {
    if (!CLAMP || (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u) {
        return value;
    }
    return min(max(value, params.low), params.high);
}
