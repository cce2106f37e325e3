// Four neighbours of a query, a key or a value in f32, zero beyond the head; and what a score becomes under the mask.
#choice CACHE: contiguous, paged
#if CACHE == paged
#include attention/pages
#else
override MASK: u32 = 0; // 1: added to the scores, 2: tells which keys are seen
#endif

// How many elements of a four exist; the constant lets loops over whole heads unroll.
fn width_of(four: u32) -> u32 {
    return select(min(4u, HEAD_SIZE - four * 4u), 4u, HEAD_SIZE % 4u == 0u);
}

fn query_four(place: u32, four: u32) -> vec4<f32> {
    var result = vec4<f32>();
    for (var i = 0u; i < width_of(four); i++) {
        result[i] = f32(queries[place + four * 4u + i]);
    }
    return result * params.scale;
}

#if CACHE == contiguous
fn key_place(unit: Unit, key: u32) -> u32 {
    return unit.batch * params.key_batch + key * params.key_row + unit.head * params.key_head;
}
#endif

fn key_four(place: u32, four: u32) -> vec4<f32> {
    if (V_lanes == 4u) {
        let whole = V_math(keys[place + four]);
        return vec4<f32>(V_at(whole, 0u), V_at(whole, 1u), V_at(whole, 2u), V_at(whole, 3u));
    }
    var result = vec4<f32>();
    for (var i = 0u; i < width_of(four); i++) {
        result[i] = V_at(V_math(keys[place + four * 4u + i]), 0u);
    }
    return result;
}

fn value_four(place: u32, four: u32) -> vec4<f32> {
    if (V_lanes == 4u) {
        let whole = V_math(values[place + four]);
        return vec4<f32>(V_at(whole, 0u), V_at(whole, 1u), V_at(whole, 2u), V_at(whole, 3u));
    }
    var result = vec4<f32>();
    for (var i = 0u; i < width_of(four); i++) {
        result[i] = V_at(V_math(values[place + four * 4u + i]), 0u);
    }
    return result;
}

// One step of rounding per product, as `sum + a * b` has two where a compiler keeps them apart.
fn dot_onto(sum: f32, left: vec4<f32>, right: vec4<f32>) -> f32 {
    return fma(left.w, right.w, fma(left.z, right.z, fma(left.y, right.y, fma(left.x, right.x, sum))));
}

#if CACHE == contiguous
// What a row sees: keys up to `last`, as its line of the mask says.
struct Visible {
    last: u32,
    line: u32,
}

fn visible_to(unit: Unit, row: u32) -> Visible {
    let real = min(row, params.rows - 1u);
    let query = real / params.group;
    let head = unit.head * params.group + real % params.group;
    let line = unit.batch * params.mask_batch + head * params.mask_head + query * params.mask_row;
    return Visible(select(params.context, params.position + query, params.causal != 0u), line);
}

fn masked(visible: Visible, key: u32, score: f32) -> f32 {
    var result = score;
    if (MASK == 1u) {
        result += f32(mask[visible.line + key * params.mask_key]);
    } else if (MASK == 2u) {
        result = select(params.hidden, score, mask[visible.line + key * params.mask_key] != TMask(0));
    }
    return select(result, params.hidden, key > visible.last);
}
#endif

// exp(score - maximum); a score of -inf counts for nothing even where every other is -inf too.
fn weight_of(score: f32, running_maximum: f32) -> f32 {
    return select(exp(score - running_maximum), 0.0, score < LOWEST);
}

fn store(place: u32, four: u32, value: vec4<f32>) {
    for (var i = 0u; i < width_of(four); i++) {
        out[place + four * 4u + i] = TRow(value[i]);
    }
}
