// Neighbours of the left factor, one or four at a time.
fn x_one(i: u32) -> f32 {
    return V_at(V_math(x[i / V_lanes]), i % V_lanes);
}

fn x_four(i: u32) -> vec4<f32> {
    if (V_lanes == 4u) {
        let four = V_math(x[i / V_lanes]);
        return vec4<f32>(V_at(four, 0u), V_at(four, 1u), V_at(four, 2u), V_at(four, 3u));
    }
    return vec4<f32>(x_one(i), x_one(i + 1u), x_one(i + 2u), x_one(i + 3u));
}

// Four neighbours of which only the first `count` exist: the others are zero and not even read.
fn x_within(i: u32, count: u32) -> vec4<f32> {
    if (count >= 4u) {
        return x_four(i);
    }
    var four = vec4<f32>();
    for (var lane = 0u; lane < count; lane++) {
        four[lane] = x_one(i + lane);
    }
    return four;
}

// The same where vectors are whole: then no load depends on a condition.
fn left_four(place: u32, count: u32) -> vec4<f32> {
    if (V_lanes == 4u) {
        return x_four(place);
    }
    return x_within(place, count);
}
