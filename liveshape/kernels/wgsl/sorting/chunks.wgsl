// pairs[row, i] = (key, index along the row) of the elements of x that lie `inner` apart, each `block` of neighbours in
// order. Runs of 1, 2, 4, ... merge in workgroup memory: an element goes behind those of the run beside it that belong
// before it, and equals keep their order. Short rows share a workgroup.
// T: f32, f16, i32, u32
override WG: u32 = 256;
override DESCENDING: bool = false;

const CHUNK = 512u;
const PADDING_KEY = 0xffffffffu; // the key of what lies past the end of a row

struct Params {
    blocks: u32, // in all
    row_blocks: u32,
    block: u32, // a power of two, at most CHUNK
    length: u32,
    inner: u32,
}
@group(0) @binding(0) var<storage, read_write> pairs: array<vec2<i32>>;
@group(0) @binding(1) var<storage, read> x: array<T>;

var<workgroup> held: array<vec2<u32>, 1024>; // twice a CHUNK: merged from one half to the other

#include common/element_keys
#include sorting/sorted_runs

fn key_at(i: u32) -> u32 {
    return held[i].x;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let first = group_index(group, grid) * (CHUNK / params.block);
    if (first >= params.blocks) {
        return;
    }
    for (var slot = thread; slot < CHUNK; slot += WG) {
        let block = first + slot / params.block;
        let row = block / params.row_blocks;
        let i = (block % params.row_blocks) * params.block + slot % params.block;
        var pair = vec2<u32>(PADDING_KEY, i);
        if (block < params.blocks && i < params.length) {
            let start = (row / params.inner) * params.length * params.inner + row % params.inner;
            let key = element_key(T_math(x[start + i * params.inner]));
            pair.x = select(key, ~key, DESCENDING);
        }
        held[slot] = pair;
    }
    var source = 0u;
    for (var width = 1u; width < params.block; width *= 2u) {
        workgroupBarrier();
        for (var slot = thread; slot < CHUNK; slot += WG) {
            let own = slot % width;
            let run = slot - own;
            let right = (slot / width) % 2u;
            let pair = held[source + slot];
            let beside = source + select(run + width, run - width, right == 1u);
            let place = own + ahead_of(pair.x, beside, width, right == 1u);
            held[CHUNK - source + run - right * width + place] = pair;
        }
        source = CHUNK - source;
    }
    workgroupBarrier();
    for (var slot = thread; slot < CHUNK; slot += WG) {
        let block = first + slot / params.block;
        let i = (block % params.row_blocks) * params.block + slot % params.block;
        if (block < params.blocks && i < params.length) {
            pairs[(block / params.row_blocks) * params.length + i] = bitcast<vec2<i32>>(held[source + slot]);
        }
    }
}
