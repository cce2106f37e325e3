// Where the elements of a reduction lie: `start_of` an output, then `walk` to its j-th element. The first eight sizes
// and strides are of the dimensions that are kept, the other eight of those that are reduced.
fn offset_of(i: u32, first: u32, rank: u32) -> u32 {
    var rest = i;
    var offset = 0u;
    for (var axis = first + rank; axis > first; axis--) {
        let dim = axis - 1u;
        let size = params.sizes[dim >> 2u][dim & 3u];
        offset += (rest % size) * params.strides[dim >> 2u][dim & 3u];
        rest /= size;
    }
    return offset;
}

fn start_of(unit: u32) -> u32 {
    return offset_of(unit, 0u, params.kept_rank);
}

fn walk(j: u32) -> u32 {
    if (params.reduced_rank <= 1u) {
        return j * params.strides[2][0];
    }
    return offset_of(j, 8u, params.reduced_rank);
}
