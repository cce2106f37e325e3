// Where a key lies in a pool of pages, which queries see it, and what a score becomes. The tables are the engine's own:
// what they name is in the pool, so nothing of it is checked here either.
#choice SOFTMAX: plain, with_sinks
override PAGE: u32 = 16; // keys
override SOFTCAP: bool = false;

fn key_place(unit: Unit, key: u32) -> u32 {
    let slot = u32(block_table[unit.pages + key / PAGE]) * PAGE + key % PAGE;
    return slot * params.key_row + unit.head * params.key_head;
}

fn value_place(unit: Unit, key: u32, place: u32) -> u32 {
    return place;
}

// What a row sees: keys from `first` to `last`.
struct Visible {
    first: u32,
    last: u32,
}

fn visible_to(unit: Unit, row: u32) -> Visible {
    let last = unit.position + min(row, unit.rows - 1u) / params.group;
    return Visible(last + 1u - min(params.window, last + 1u), last);
}

fn masked(visible: Visible, key: u32, score: f32) -> f32 {
    var result = score;
    if (SOFTCAP) {
        // tanh by a power that never overflows.
        let power = exp(-2.0 * abs(score / params.softcap));
        result = params.softcap * sign(score) * (1.0 - power) / (1.0 + power);
    }
    return select(result, params.hidden, key < visible.first || key > visible.last);
}

#if SOFTMAX == with_sinks
// A logit of each head that a query gives weight to beside its keys, and that has no value.
fn sink_of(unit: Unit, row: u32) -> f32 {
    let sink = sinks[unit.head * params.group + min(row, unit.rows - 1u) % params.group];
    return max(f32(sink), LOWEST);
}
#endif
