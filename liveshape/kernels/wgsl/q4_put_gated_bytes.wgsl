// A gated unit of two 4-bit linear layers of one input as rows of bytes, for the layer that wants them: columns are a
// multiple of 64, and those of 32 neighbours meet in one workgroup.
@group(0) @binding(4) var<storage, read_write> out: array<vec4<u32>>;
@group(0) @binding(5) var<uniform> params: Params;

// include q4_gated
// include row_own_steps
// include row_group

// 32 neighbours of a row, from the pairs at 16 places on.
fn eight_at(place: u32) -> Eight {
    return Eight(
        vec4<f32>(pair_at(place), pair_at(place + 1u)),
        vec4<f32>(pair_at(place + 2u), pair_at(place + 3u)),
        vec4<f32>(pair_at(place + 4u), pair_at(place + 5u)),
        vec4<f32>(pair_at(place + 6u), pair_at(place + 7u)),
        vec4<f32>(pair_at(place + 8u), pair_at(place + 9u)),
        vec4<f32>(pair_at(place + 10u), pair_at(place + 11u)),
        vec4<f32>(pair_at(place + 12u), pair_at(place + 13u)),
        vec4<f32>(pair_at(place + 14u), pair_at(place + 15u)),
    );
}
