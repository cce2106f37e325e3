// What a score becomes under the mask, and what it counts for.
#choice CACHE: contiguous, paged
#choice BIAS: absent, added
#if CACHE == paged
#include attention/pages
#else
override MASK: u32 = 0; // 1: added to the scores, 2: tells which keys are seen, 3: which are hidden

#if BIAS == added
const CHANGES_SCORES: bool = true; // before the mask does
#else
const CHANGES_SCORES: bool = MASK != 0;
#endif
#endif

// One step of rounding per product, as `sum + a * b` has two where a compiler keeps them apart.
fn dot_onto(sum: f32, left: vec4<f32>, right: vec4<f32>) -> f32 {
    return fma(left.w, right.w, fma(left.z, right.z, fma(left.y, right.y, fma(left.x, right.x, sum))));
}

#if CACHE == contiguous
// What a row sees: keys up to `last`, as its line of the mask says.
struct Visible {
    last: u32,
    line: u32,
    bias_line: u32,
}

fn visible_to(unit: Unit, row: u32) -> Visible {
    let real = min(row, params.rows - 1u);
    let query = real / params.group;
    let head = unit.head * params.group + real % params.group;
    let first = params.mask_start + unit.batch % params.mask_batches * params.mask_batch;
    let line = first + head * params.mask_head + query * params.mask_row;
    let first_bias = params.bias_start + unit.batch % params.bias_batches * params.bias_batch;
    let bias_line = first_bias + head * params.bias_head + query * params.bias_row;
    return Visible(select(params.context, params.position + query, params.causal != 0u), line, bias_line);
}

fn masked(visible: Visible, key: u32, score: f32) -> f32 {
    var result = score;
#if BIAS == added
    result += f32(bias[visible.bias_line + key * params.bias_key]);
#endif
    if (MASK == 1u) {
        result += f32(mask[visible.line + key * params.mask_key]);
    } else if (MASK == 2u) {
        result = select(params.masked, result, mask[visible.line + key * params.mask_key] != TMask(0));
    } else if (MASK == 3u) {
        result = select(result, params.masked, mask[visible.line + key * params.mask_key] != TMask(0));
    }
    return select(result, params.hidden, key > visible.last);
}
#endif

// exp(score - maximum); a score of -inf counts for nothing even where every other is -inf too.
fn weight_of(score: f32, running_maximum: f32) -> f32 {
    return select(exp(score - running_maximum), 0.0, score < LOWEST);
}
