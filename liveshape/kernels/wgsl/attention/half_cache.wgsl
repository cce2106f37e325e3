// Keys and values of a contiguous cache as halves for attention/matrix_tiles.wgsl: tiles of KEYS keys of a head, with
// their values behind them, each divided by a power of two that keeps the largest number in range. What lies past the
// context or the head is zero. A workgroup takes a tile.
// scratch halves, factors
// unchecked: heads, keys and their strides are those of the tensors, which planning checked.
// T: f32, f16
override WG: u32 = 256;
override HEAD_SIZE: u32 = 64; // a multiple of 8, as those of keys and of values are
override KEY_SIZE: u32 = 64;
override VALUE_SIZE: u32 = 64;
override KEYS: u32 = 32;

const EIGHTS: u32 = (HEAD_SIZE + 15) / 16 * 2; // of a head, with zeros up to whole matrices

struct Params {
    heads: u32, // of all batches
    key_heads: u32,
    context: u32,
    key_start: u32, // and strides, in vectors
    key_batch: u32,
    key_row: u32,
    key_head: u32,
    value_start: u32,
    value_batch: u32,
    value_row: u32,
    value_head: u32,
}
@group(0) @binding(0) var<storage, read_write> halves: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> factors: array<vec2<f32>>; // of the keys and the values of a tile
@group(0) @binding(2) var<storage, read> keys: array<V>;
@group(0) @binding(3) var<storage, read> values: array<V>;

var<workgroup> largest_of: array<vec2<f32>, WG>;

#include attention/head_fours
#include quantization/half_exponent

fn largest(low: vec4<f32>, high: vec4<f32>) -> f32 {
    let four = max(abs(low), abs(high));
    return max(max(four.x, four.y), max(four.z, four.w));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let tiles = (params.context + KEYS - 1u) / KEYS;
    for (var i = group_index(group, grid); i < params.heads * tiles; i += grid.x * grid.y * grid.z) {
        let head = i / tiles;
        let batch = head / params.key_heads;
        let own = head % params.key_heads;
        let first_key = params.key_start + batch * params.key_batch + own * params.key_head;
        let first_value = params.value_start + batch * params.value_batch + own * params.value_head;
        var both = vec2<f32>();
        for (var load = thread; load < KEYS * EIGHTS; load += WG) {
            let key = i % tiles * KEYS + load / EIGHTS;
            if (key < params.context && load % EIGHTS * 8u < HEAD_SIZE) {
                let at = first_key + key * params.key_row;
                let value = first_value + key * params.value_row;
                let four = load % EIGHTS * 2u;
                both = max(both, vec2<f32>(
                    largest(key_four(at, four), key_four(at, four + 1u)),
                    largest(value_four(value, four), value_four(value, four + 1u)),
                ));
            }
        }
        largest_of[thread] = both;
        for (var half = WG / 2u; half > 0u; half /= 2u) {
            workgroupBarrier();
            if (thread < half) {
                largest_of[thread] = max(largest_of[thread], largest_of[thread + half]);
            }
        }
        workgroupBarrier();
        let key_scale = half_scale(largest_of[0].x);
        let value_scale = half_scale(largest_of[0].y);
        if (thread == 0u) {
            factors[i] = vec2<f32>(key_scale.factor, value_scale.factor);
        }
        for (var load = thread; load < KEYS * EIGHTS; load += WG) {
            let key = i % tiles * KEYS + load / EIGHTS;
            var of_key = vec4<u32>();
            var of_value = vec4<u32>();
            if (key < params.context && load % EIGHTS * 8u < HEAD_SIZE) {
                let at = first_key + key * params.key_row;
                let value = first_value + key * params.value_row;
                let four = load % EIGHTS * 2u;
                of_key = eight_halves(
                    key_four(at, four) * key_scale.inverse, key_four(at, four + 1u) * key_scale.inverse,
                );
                of_value = eight_halves(
                    value_four(value, four) * value_scale.inverse,
                    value_four(value, four + 1u) * value_scale.inverse,
                );
            }
            halves[i * 2u * KEYS * EIGHTS + load] = of_key;
            halves[(i * 2u + 1u) * KEYS * EIGHTS + load] = of_value;
        }
        workgroupBarrier();
    }
}
