// Each thread of a workgroup may have the sums of a unit, four columns of a row, to put: the i-th of all rows. A workgroup
// has PLACES of them next to each other; 16 are 32 neighbours of a gated row, which one thread makes bytes.
var<workgroup> pairs: array<vec2<f32>, PLACES>;

fn pair_at(place: u32) -> vec2<f32> {
    return pairs[place];
}

fn expect_four(row: u32, column: u32) {
}

fn put_unit(lane: u32, i: u32, place: u32, has: bool, sums: vec4<f32>) {
    let fours = params.columns / 4u;
    if (has && i < params.rows * fours) {
        pairs[place] = gated_of(i % fours * 4u, sums);
    }
    workgroupBarrier();
    let group = (i - place) / 16u + lane;
    if (lane < PLACES / 16u && group < params.rows * fours / 16u) {
        put_group(group, eight_at(lane * 16u));
    }
}
