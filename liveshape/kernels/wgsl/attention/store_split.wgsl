// What a split of the context leaves of a row: HEAD_SIZE sums, their maximum, their sum of exponentials.

fn store_split(place: u32, four: u32, sum: vec4<f32>, running_maximum: f32, exp_sum: f32) {
    let start = place * (HEAD_SIZE + 2u);
    for (var e = 0u; e < width_of(four); e++) {
        split_results[start + four * 4u + e] = sum[e];
    }
    if (four == 0u) {
        split_results[start + HEAD_SIZE] = running_maximum;
        split_results[start + HEAD_SIZE + 1u] = exp_sum;
    }
}
