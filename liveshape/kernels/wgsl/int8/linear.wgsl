// A linear layer with weights of eight bits, [N, K]: a unit is four neighbours of the output, of one row or of four,
// and UNIT_THREADS threads split its depth. What x is and how products are summed is up to the operands.
override WG: u32 = 128;
override ROWS: u32 = 1; // 1 or 4
override ROW_ALIGNED: bool = true; // four neighbours always lie in one row; where they may not, ROWS is 1

#include int8/store_four
#include int8/operands

alias Total = array<vec4<Sum>, ROWS>;

fn combine(a: Total, b: Total) -> Total {
    var left = a;
    var right = b;
    for (var r = 0u; r < ROWS; r++) {
        left[r] += right[r];
    }
    return left;
}

#include reduction/across_threads
#include common/bytes
#include int8/weight_words

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let elements = params.rows * params.columns;
    let unit = unit_of(group_index(group, grid), thread);
    var rows = vec4<u32>();
    var columns = vec4<u32>();
    var units = (elements + 3u) / 4u;
    if (ROW_ALIGNED) {
        let fours = params.columns / 4u;
        units = (params.rows + ROWS - 1u) / ROWS * fours;
        let some = min(unit, units - 1u);
        rows = min(vec4<u32>(some / fours * ROWS) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.rows - 1u));
        columns = vec4<u32>(some % fours * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
    } else {
        let places = min(vec4<u32>(unit * 4u) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(elements - 1u));
        rows = places / params.columns;
        columns = places % params.columns;
    }
    let member = member_of(thread);
    var mine: Total;
    for (var k = member * 4u; k < params.depth; k += COOPERATING * 4u) {
        let left = params.depth - k;
        var words = vec4<u32>();
        for (var c = 0u; c < 4u; c++) {
            words[c] = weight_word(columns[c] * params.depth + k, left);
        }
        if (ROW_ALIGNED) {
            for (var r = 0u; r < ROWS; r++) {
                let four = x_four(rows[r] * params.depth + k, left);
                mine[r] += vec4<Sum>(
                    times(four, words.x), times(four, words.y), times(four, words.z), times(four, words.w)
                );
            }
        } else {
            for (var c = 0u; c < 4u; c++) {
                mine[0][c] += times(x_four(rows[c] * params.depth + k, left), words[c]);
            }
        }
    }
    var total = reduce_unit(thread, mine);
    if (member > 0u || unit >= units) {
        return;
    }
    for (var r = 0u; r < ROWS; r++) {
        let first = select(unit * 4u, (rows.x + r) * params.columns + columns.x, ROW_ALIGNED);
        if (first < elements) {
            var values = vec4<f32>();
            for (var c = 0u; c < 4u; c++) {
                values[c] = value_of(total[r][c], columns[c]);
            }
            store_four(first, elements, values);
        }
    }
}
