// (key, token): the higher key, and of equal ones the lower token.
alias Total = vec2<u32>;

const NONE: Total = Total(0u, 0u);

fn combine(a: Total, b: Total) -> Total {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}
