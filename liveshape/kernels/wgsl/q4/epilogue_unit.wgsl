// The epilogue of units of four columns of a row: each thread of a workgroup may have the sums of one. Where it quantizes
// them, a workgroup has PLACES units next to each other, of which one thread quantizes 32 neighbours.
#if EPILOGUE == gated_quantized
var<workgroup> pairs: array<vec2<f32>, PLACES>;

fn pair_at(place: u32) -> vec2<f32> {
    return pairs[place];
}

fn prefetch_residual(row: u32, column: u32) {
}

fn store_unit(thread: u32, row: u32, column: u32, place: u32, has: bool, sums: vec4<f32>) {
    if (has && row < params.rows && column < params.columns) {
        pairs[place] = gated_of(column, sums);
    }
    workgroupBarrier();
    let fours = params.columns / 4u;
    let group = (row * fours + column / 4u - place) / 16u + thread;
    if (thread < PLACES / 16u && group < params.rows * fours / 16u) {
        store_quantized(group, group_at(thread * 16u));
    }
}
#elif EPILOGUE == residual_quantized
// The residual and the weight of the norm are prefetched while the sums are made.
var<workgroup> fours: array<vec4<f32>, PLACES>;
var<workgroup> squares: array<f32, PLACES>;
var<private> residual_ahead: vec4<f32>;
var<private> norm_weight_ahead: vec4<f32>;

fn prefetch_residual(row: u32, column: u32) {
    residual_ahead = residual[column / 4u];
    norm_weight_ahead = norm_weight[column / 4u];
}

fn store_unit(thread: u32, row: u32, column: u32, place: u32, has: bool, sums: vec4<f32>) {
    if (has && column < params.columns) {
        let four = residual_ahead + vec4<f32>(
            with_bias(column, sums.x), with_bias(column + 1u, sums.y),
            with_bias(column + 2u, sums.z), with_bias(column + 3u, sums.w),
        );
        total[column / 4u] = four;
        fours[place] = four * norm_weight_ahead;
        squares[place] = dot(four, four);
    }
    workgroupBarrier();
    let group = (column / 4u - place) / 8u + thread;
    if (thread < PLACES / 8u && group < params.columns / 32u) {
        var eight: Eight;
        var all = 0.0;
#unroll n < 8
        eight[$n] = fours[thread * 8u + $nu];
        all += squares[thread * 8u + $nu];
#endunroll
        store_quantized_with(group, eight, all);
    }
}
#else
#if EPILOGUE != residual
fn prefetch_residual(row: u32, column: u32) {
}
#endif

fn store_unit(thread: u32, row: u32, column: u32, place: u32, has: bool, sums: vec4<f32>) {
    if (has) {
#if EPILOGUE == residual
        store_prefetched(row, column, sums);
#else
        store_four(row, column, sums);
#endif
    }
}
#endif
