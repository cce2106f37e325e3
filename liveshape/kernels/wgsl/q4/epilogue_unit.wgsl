// The epilogue of units of four columns of a row: each thread of a workgroup may have the sums of one, the i-th of all
// rows.
#if EPILOGUE == gated_quantized
// A workgroup has PLACES units next to each other; 16 are 32 neighbours of a gated row, which one thread quantizes.
var<workgroup> pairs: array<vec2<f32>, PLACES>;

fn pair_at(place: u32) -> vec2<f32> {
    return pairs[place];
}

fn prefetch_residual(row: u32, column: u32) {
}

fn store_unit(thread: u32, i: u32, place: u32, has: bool, sums: vec4<f32>) {
    let fours = params.columns / 4u;
    if (has && i < params.rows * fours) {
        pairs[place] = gated_of(i % fours * 4u, sums);
    }
    workgroupBarrier();
    let group = (i - place) / 16u + thread;
    if (thread < PLACES / 16u && group < params.rows * fours / 16u) {
        store_quantized(group, group_at(thread * 16u));
    }
}
#elif EPILOGUE == residual_quantized
// A workgroup has PLACES units next to each other; 8 are the 32 neighbours that one thread quantizes. The residual and
// the weight of the norm are prefetched while the sums are made.
var<workgroup> fours: array<vec4<f32>, PLACES>;
var<workgroup> squares: array<f32, PLACES>;
var<private> residual_ahead: vec4<f32>;
var<private> norm_weight_ahead: vec4<f32>;

fn prefetch_residual(row: u32, column: u32) {
    residual_ahead = residual[column / 4u];
    norm_weight_ahead = norm_weight[column / 4u];
}

fn store_unit(thread: u32, i: u32, place: u32, has: bool, sums: vec4<f32>) {
    let units = params.columns / 4u;
    if (has && i < units) {
        let column = i * 4u;
        let four = residual_ahead + vec4<f32>(
            with_bias(column, sums.x), with_bias(column + 1u, sums.y),
            with_bias(column + 2u, sums.z), with_bias(column + 3u, sums.w),
        );
        total[i] = four;
        fours[place] = four * norm_weight_ahead;
        squares[place] = dot(four, four);
    }
    workgroupBarrier();
    let group = (i - place) / 8u + thread;
    if (thread < PLACES / 8u && group < units / 8u) {
        let first = thread * 8u;
        let eight = Eight(
            fours[first], fours[first + 1u], fours[first + 2u], fours[first + 3u],
            fours[first + 4u], fours[first + 5u], fours[first + 6u], fours[first + 7u],
        );
        var all = squares[first];
        for (var other = 1u; other < 8u; other++) {
            all += squares[first + other];
        }
        store_quantized_with(group, eight, all);
    }
}
#else
#include q4/residual_prefetch

fn store_unit(thread: u32, i: u32, place: u32, has: bool, sums: vec4<f32>) {
    let fours = (params.columns + 3u) / 4u;
    if (has && i < params.rows * fours) {
        store_prefetched(i / fours, i % fours * 4u, sums);
    }
}
#endif
