// The rows are those of a tensor.
@group(0) @binding(2) var<storage, read> x: array<V>;
@group(0) @binding(3) var<uniform> params: Params;

fn first_look(i: u32) -> V_math {
    return V_math(x[i]);
}

fn second_look(i: u32) -> V_math {
    return V_math(x[i]);
}
