// The rows are those of a sum, which is a result as well; it is rounded before it is normalized, as by two operators.
@group(0) @binding(2) var<storage, read_write> total: array<V>;
@group(0) @binding(3) var<storage, read> a: array<V>;
@group(0) @binding(4) var<storage, read> b: array<V>;
@group(0) @binding(5) var<uniform> params: Params;

fn first_look(i: u32) -> V_math {
    let value = V(V_math(a[i]) + V_math(b[i]));
    total[i] = value;
    return V_math(value);
}

// Each lane reads back only what it wrote itself.
fn second_look(i: u32) -> V_math {
    return V_math(total[i]);
}
