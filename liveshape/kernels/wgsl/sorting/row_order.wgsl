// How rows of x compare, element by element: below zero where a goes before b, zero where all are equal.
#include common/element_keys

fn compare(a: u32, b: u32) -> i32 {
    for (var column = 0u; column < params.columns; column++) {
        let outer = (column / params.inner) * params.rows;
        let within = column % params.inner;
        let left = element_key(T_math(x[(outer + a) * params.inner + within]));
        let right = element_key(T_math(x[(outer + b) * params.inner + within]));
        if (left != right || (KIND == FLOAT && left == NAN_KEY)) {
            return select(1, -1, left < right);
        }
    }
    return 0;
}
