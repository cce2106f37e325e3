// What a split of the context leaves of a row: HEAD sums, their top, their mass.

fn put_part(place: u32, four: u32, sum: vec4<f32>, top: f32, mass: f32) {
    let start = place * (HEAD + 2u);
    for (var e = 0u; e < width_of(four); e++) {
        split_results[start + four * 4u + e] = sum[e];
    }
    if (four == 0u) {
        split_results[start + HEAD] = top;
        split_results[start + HEAD + 1u] = mass;
    }
}
