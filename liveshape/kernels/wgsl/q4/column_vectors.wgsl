// Four neighbouring columns of the weight; what lies past the last one is that.
alias Vectors = array<vec4<u32>, 4>;

fn columns_from(column: u32) -> vec4<u32> {
    return min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.columns - 1u));
}

fn vectors_at(places: vec4<u32>) -> Vectors {
    return Vectors(weight[places.x], weight[places.y], weight[places.z], weight[places.w]);
}
