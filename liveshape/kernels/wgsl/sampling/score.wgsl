// A logit as a score: divided by the temperature, and finite. MASKED_SCORE marks what no draw may give.
const MASKED_SCORE: f32 = -3.4028234e38;
const HIGHEST: f32 = 3.0e38;

fn score_of(logit: f32, temperature: f32) -> f32 {
    let bits = bitcast<u32>(logit);
    if ((bits & 0x7fffffffu) > 0x7f800000u || bits == 0xff800000u) {
        return MASKED_SCORE;
    }
    return clamp(logit / temperature, -HIGHEST, HIGHEST);
}
