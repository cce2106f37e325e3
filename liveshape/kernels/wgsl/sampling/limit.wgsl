// Per row, of a workgroup each: the key of the lowest score that top-k, top-p and min-p let through, without sorting.
// A score passes while the tokens above it are fewer than k, and while their share of what top-k left is below p; equal
// scores pass together. Tokens are first counted in bins by their distance from the peak, which finds the bin that the
// limit lies in; its tokens are then told apart by the digits of their keys. Probabilities are counted in units of
// 2^-31, so that the order of additions does not matter and the same seed gives the same text.
override WG: u32 = 1024;

const BINS = 1024u;
const BINS_PER_UNIT = 32.0; // of distance; the last bin has everything beyond
const DIGITS = 256u;
const RUN = 32u;
const FEW = 64u;
const ONE: f32 = 2147483648.0;

struct Params {
    count: u32,
    rows: u32,
    spans: u32, // of a row
#if SETTINGS == shared
    top_k: u32, // 0: off
    top_p: f32, // 1: off
    min_p: f32, // 0: off
#endif
}
@group(0) @binding(0) var<storage, read_write> limit: array<i32>;
@group(0) @binding(1) var<storage, read_write> chosen: array<i32>;
@group(0) @binding(2) var<storage, read> scores: array<f32>;
@group(0) @binding(3) var<storage, read> masses: array<vec2<f32>>;
#if SETTINGS == by_row
@group(0) @binding(4) var<storage, read> settings: array<i32>;

// What a row has of its own where others share it.
struct RowParams {
    count: u32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
}
#endif

#include sampling/settings
#include sampling/score
#include common/float_keys

alias Amount = vec2<u32>; // (tokens, their probability)

struct Place {
    bin: u32,
    before: Amount, // in all bins above it
    inside: Amount,
}

var<workgroup> few: array<vec2<f32>, FEW>;
var<workgroup> bin_tokens: array<atomic<u32>, BINS>;
var<workgroup> bin_mass: array<atomic<u32>, BINS>;
var<workgroup> digit_tokens: array<atomic<u32>, DIGITS>;
var<workgroup> digit_mass: array<atomic<u32>, DIGITS>;
var<workgroup> runs: array<Amount, RUN>;
var<workgroup> found: Place;
var<workgroup> chosen_count: atomic<u32>;
var<private> row: u32;
var<private> start: u32; // of the row in scores

// (peak, sum of exp(score - peak)) of all scores.
fn softmax_of(thread: u32) -> vec2<f32> {
    for (var place = thread; place < FEW; place += WG) {
        var mine = vec2<f32>(MASKED_SCORE, 0.0);
        for (var i = place; i < params.spans; i += FEW) {
            mine = joined(mine, masses[row * params.spans + i]);
        }
        few[place] = mine;
    }
    workgroupBarrier();
    var total = vec2<f32>(MASKED_SCORE, 0.0);
    for (var i = 0u; i < FEW; i++) {
        total = joined(total, few[i]);
    }
    return total;
}

fn joined(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    let maximum = max(a.x, b.x);
    return vec2<f32>(maximum, a.y * exp(a.x - maximum) + b.y * exp(b.x - maximum));
}

fn mass_of(score: f32, whole: vec2<f32>) -> u32 {
    return u32(min(exp(score - whole.x) / whole.y, 1.0) * ONE + 0.5);
}

fn bin_of(score: f32, whole: vec2<f32>) -> u32 {
    return u32(min((whole.x - score) * BINS_PER_UNIT, f32(BINS - 1u)));
}

fn amount_in(bin: u32, coarse: bool) -> Amount {
    if (coarse) {
        return Amount(atomicLoad(&bin_tokens[bin]), atomicLoad(&bin_mass[bin]));
    }
    return Amount(atomicLoad(&digit_tokens[bin]), atomicLoad(&digit_mass[bin]));
}

// The first bin by whose end the needed tokens (kind 0) or the needed mass (kind 1) are together.
fn find(thread: u32, coarse: bool, before: Amount, need: u32, kind: u32) -> Place {
    let each = select(DIGITS, BINS, coarse) / RUN;
    workgroupBarrier();
    for (var run = thread; run < RUN; run += WG) {
        var sum = Amount(0u, 0u);
        for (var i = 0u; i < each; i++) {
            sum += amount_in(run * each + i, coarse);
        }
        runs[run] = sum;
    }
    workgroupBarrier();
    if (thread == 0u) {
        var above = before;
        var run = 0u;
        while (run < RUN - 1u && above[kind] + runs[run][kind] < need) {
            above += runs[run];
            run++;
        }
        var bin = run * each;
        let end = bin + each - 1u;
        while (bin < end && above[kind] + amount_in(bin, coarse)[kind] < need) {
            above += amount_in(bin, coarse);
            bin++;
        }
        found = Place(bin, above, amount_in(bin, coarse));
    }
    return workgroupUniformLoad(&found);
}

// The tokens of one bin, listed.
fn choose(thread: u32, bin: u32, whole: vec2<f32>) -> u32 {
    if (thread == 0u) {
        atomicStore(&chosen_count, 0u);
    }
    workgroupBarrier();
    for (var i = thread; i < params.count; i += WG) {
        let score = scores[start + i];
        if (score > MASKED_SCORE && bin_of(score, whole) == bin) {
            chosen[start + atomicAdd(&chosen_count, 1u)] = i32(i);
        }
    }
    storageBarrier();
    workgroupBarrier();
    return atomicLoad(&chosen_count);
}

// The key at which `need` is reached, first its bin, then digit by digit from the highest, and what lies at or above it.
// There is one place that finds, as compilers of software adapters inline it.
fn refine(thread: u32, whole: vec2<f32>, need: u32, kind: u32) -> vec2<u32> {
    var place = Place(0u, Amount(0u, 0u), Amount(0u, 0u));
    var key = 0u;
    var count = 0u;
    for (var step = 0u; step < 5u; step++) {
        let coarse = step == 0u;
        let shift = 32u - 8u * step;
        if (!coarse) {
            if (step == 1u) {
                count = choose(thread, place.bin, whole);
            }
            for (var i = thread; i < DIGITS; i += WG) {
                atomicStore(&digit_tokens[i], 0u);
                atomicStore(&digit_mass[i], 0u);
            }
            workgroupBarrier();
            for (var i = thread; i < count; i += WG) {
                let score = scores[start + u32(chosen[start + i])];
                let its = key_of(score);
                if (((its ^ key) >> shift) < DIGITS) {
                    let digit = DIGITS - 1u - ((its >> shift) % DIGITS);
                    atomicAdd(&digit_tokens[digit], 1u);
                    atomicAdd(&digit_mass[digit], mass_of(score, whole));
                }
            }
        }
        place = find(thread, coarse, place.before, need, kind);
        if (!coarse) {
            key |= (DIGITS - 1u - place.bin) << shift;
        }
    }
    return vec2<u32>(key, place.before.y + place.inside.y);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let own_row = group_index(group, grid);
    if (own_row >= params.rows) {
        return;
    }
    row = own_row; // not read here: WGSL takes no private variable for uniform, and there are barriers below
    start = own_row * params.count;
#if SETTINGS == by_row
    let own = settings_of(own_row);
    if (!is_limited(own)) {
        return;
    }
    let params = RowParams(params.count, select(own.top_k, 0u, own.top_k >= params.count), own.top_p, own.min_p);
#endif
    let whole = softmax_of(thread);
    var key = 0u;
    if (params.top_k > 0u || params.top_p < 1.0) {
        for (var i = thread; i < BINS; i += WG) {
            atomicStore(&bin_tokens[i], 0u);
            atomicStore(&bin_mass[i], 0u);
        }
        workgroupBarrier();
        for (var i = thread; i < params.count; i += WG) {
            let score = scores[start + i];
            if (score > MASKED_SCORE) {
                let bin = bin_of(score, whole);
                atomicAdd(&bin_tokens[bin], 1u);
                atomicAdd(&bin_mass[bin], mass_of(score, whole));
            }
        }
        var kept = u32(ONE);
        // One place that refines, as compilers of software adapters inline it: top-k, and then top-p of what that left.
        for (var kind = 0u; kind < 2u; kind++) {
            if (select((params.top_p < 1.0), (params.top_k > 0u), kind == 0u)) {
                let need = select(max(u32(params.top_p * f32(kept)), 1u), params.top_k, kind == 0u);
                let reached = refine(thread, whole, need, kind);
                key = max(key, reached.x);
                kept = reached.y;
            }
        }
    }
    if (params.min_p > 0.0) {
        key = max(key, key_of(whole.x + log(params.min_p)));
    }
    if (thread == 0u) {
        limit[own_row] = bitcast<i32>(key);
    }
}
