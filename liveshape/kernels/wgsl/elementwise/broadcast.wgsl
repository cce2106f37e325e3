// Where the operands of a broadcast lie: dims[axis] holds the strides of up to three operands and the axis' size.
fn offsets(element: u32) -> vec3<u32> {
    var rest = element;
    var found = vec3<u32>(0u);
    for (var axis = params.rank; axis > 1u; axis--) {
        let dim = params.dims[axis - 1u];
        found += (rest % dim.w) * dim.xyz;
        rest = rest / dim.w;
    }
    return found + rest * params.dims[0].xyz;
}

// Whether each operand moves along the innermost axis (1) or repeats its element (0).
fn inner_steps() -> vec3<u32> {
    return params.dims[max(params.rank, 1u) - 1u].xyz;
}
