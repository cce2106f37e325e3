// Where element i of `sizes` lies along `strides`.
fn walk(i: u32) -> u32 {
    var rest = i;
    var offset = 0u;
    for (var axis = params.rank; axis > 0u; axis--) {
        let dim = axis - 1u;
        let size = params.sizes[dim >> 2u][dim & 3u];
        offset += (rest % size) * params.strides[dim >> 2u][dim & 3u];
        rest = rest / size;
    }
    return offset;
}
