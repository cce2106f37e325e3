// All rows may share their settings, or have a line each in a table, with the bits of floats.
#choice SETTINGS: shared, by_row
#if SETTINGS == by_row
const COLUMNS = 12u;

struct Settings {
    temperature: f32, // 0: greedy
    top_k: u32,
    top_p: f32,
    min_p: f32,
    penalty: f32, // of repetition
    frequency: f32,
    presence: f32,
    prompt: u32, // tokens of the history that frequency and presence do not count
    seed: u32,
    position: u32, // that numbers the draw
    sequence: u32, // whose history it follows, a line of the block table
    length: u32, // of that
}

fn settings_of(row: u32) -> Settings {
    let i = row * COLUMNS;
    return Settings(
        bitcast<f32>(settings[i]), u32(settings[i + 1u]), bitcast<f32>(settings[i + 2u]),
        bitcast<f32>(settings[i + 3u]), bitcast<f32>(settings[i + 4u]), bitcast<f32>(settings[i + 5u]),
        bitcast<f32>(settings[i + 6u]), u32(settings[i + 7u]), u32(settings[i + 8u]), u32(settings[i + 9u]),
        u32(settings[i + 10u]), u32(settings[i + 11u]),
    );
}

// What scores are divided by: those of a greedy row stay.
fn divisor_of(own: Settings) -> f32 {
    return select(own.temperature, 1.0, own.temperature == 0.0);
}

fn is_penalized(own: Settings) -> bool {
    return (own.penalty != 1.0 || own.frequency != 0.0 || own.presence != 0.0) && own.length > 0u;
}

fn is_limited(own: Settings) -> bool {
    return own.temperature != 0.0 && (own.top_k > 0u || own.top_p < 1.0 || own.min_p > 0.0);
}
#endif
