// A 4-bit linear layer of one row, bound by reading the weight: a unit is four columns, and PARTS threads share its depth.
// T: f32, f16
// TOut: f32, f16
// TScale: f32, f16
// TBias: f32, f16
override WG: u32 = 256;
override TURNS: u32 = 1; // how many words of a column a thread asks for before it waits for the first: 1 or 4

alias Total = vec4<f32>; // the sums of four columns

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

// include multiply_add
// include parts
// include q4_operands
// include q4_row
// include q4_put
// include q4_eight

fn plus(sums: vec4<f32>, eight: Eight, column: u32) -> vec4<f32> {
    return plus_row(sums, numbers_of(eight, column), 0u);
}

// What a thread asks for before it waits for the first of it.
struct Turn {
    first: Eight,
    second: Eight,
    third: Eight,
    fourth: Eight,
}

fn ask(columns: vec4<u32>, i: u32) -> Turn {
    let first = fetch(columns, i);
    if (TURNS == 4u) {
        return Turn(first, fetch(columns, i + SHARE), fetch(columns, i + 2u * SHARE), fetch(columns, i + 3u * SHARE));
    }
    return Turn(first, first, first, first);
}

fn plus_turn(sums: vec4<f32>, turn: Turn, column: u32) -> vec4<f32> {
    let result = plus(sums, turn.first, column);
    if (TURNS == 4u) {
        return plus(plus(plus(result, turn.second, column), turn.third, column), turn.fourth, column);
    }
    return result;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let unit = unit_of(group_index(group, grid), lane);
    let last = params.columns - 1u;
    let column = min(unit * 4u, last);
    let columns = vec4<u32>(column, min(column + 1u, last), min(column + 2u, last), min(column + 3u, last));
    let part = part_of(lane);
    var sums = Total();
    // There are fewer parts than words, so that each has a first turn; it is on its way while the row is taken.
    var i = part;
    var turn = ask(columns, i);
    take_row(lane);
    loop {
        sums = plus_turn(sums, turn, column);
        i += SHARE * TURNS;
        if (i * 8u >= params.depth) {
            break;
        }
        turn = ask(columns, i);
    }
    let total = across_parts(lane, sums);
    if (part == 0u && unit * 4u < params.columns) {
        put_four(0u, unit * 4u, total);
    }
}
