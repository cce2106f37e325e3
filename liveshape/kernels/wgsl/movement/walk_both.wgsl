// Where element i of `sizes` lies in the source and in the target; strides may be negative.
fn walk_both(i: u32) -> vec2<i32> {
    var rest = i;
    var offsets = vec2<i32>(params.source_start, params.target_start);
    for (var axis = params.rank; axis > 0u; axis--) {
        let dim = axis - 1u;
        let size = params.sizes[dim >> 2u][dim & 3u];
        let strides = vec2<i32>(params.source_strides[dim >> 2u][dim & 3u], params.target_strides[dim >> 2u][dim & 3u]);
        offsets += i32(rest % size) * strides;
        rest = rest / size;
    }
    return offsets;
}
