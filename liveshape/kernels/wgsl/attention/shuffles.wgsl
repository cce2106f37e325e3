// Subgroup shuffles among neighbouring threads, `step` or fewer lanes away, whatever the size of a subgroup is.

fn shuffled(value: f32, step: u32) -> f32 {
    return subgroupShuffleXor(value, step);
}

fn shuffled_four(value: vec4<f32>, step: u32) -> vec4<f32> {
    return subgroupShuffleXor(value, step);
}

// What the thread `place` has, counted from the first of the LANES neighbours, which is lane `first` of the subgroup.
fn from_neighbour(value: f32, first: u32, place: u32) -> f32 {
    return subgroupShuffle(value, first + place);
}
