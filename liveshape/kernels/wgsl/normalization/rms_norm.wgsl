// One workgroup per row: out = row * rsqrt(mean(row^2) + eps) * weight, summed in f32.
// Its rows are those of a tensor, or of a sum that is a result as well; its output is floats, or quantized.
// composable x: it may be read for its statistics, and once more.
// composable: each vector is stored once.
#choice ROWS: tensor, sum
#choice OUTPUT: floats, quantized
// T: f32, f16
override WG: u32 = 256;
override SUBGROUP: u32 = 0;
override REGISTER_VECTORS: u32 = 0; // of a thread, with as many of the weight; 0: it reads them again

struct Params {
    rows: u32,
    width: u32, // in vectors
    eps: f32,
}
#if OUTPUT == quantized
@group(0) @binding(0) var<storage, read_write> out: array<vec4<u32>>;
#else
@group(0) @binding(0) var<storage, read_write> out: array<V>;
#endif
@group(0) @binding(1) var<storage, read> weight: array<V>;
#if ROWS == sum
@group(0) @binding(2) var<storage, read_write> total: array<V>;
@group(0) @binding(3) var<storage, read> a: array<V>;
@group(0) @binding(4) var<storage, read> b: array<V>;

// The sum is rounded before it is normalized, as by two operators.
fn load_first(i: u32) -> V_math {
    let value = V(V_math(a[i]) + V_math(b[i]));
    total[i] = value;
    return V_math(value);
}

// Each thread reads back only what it wrote itself.
fn load_again(i: u32) -> V_math {
    return V_math(total[i]);
}
#else
@group(0) @binding(2) var<storage, read> x: array<V>;

fn load_first(i: u32) -> V_math {
    return V_math(x[i]);
}

fn load_again(i: u32) -> V_math {
    return V_math(x[i]);
}
#endif

#include reduction/across_workgroup

var<private> registers: array<V_math, max(REGISTER_VECTORS, 1u)>;
var<private> weight_registers: array<V_math, max(REGISTER_VECTORS, 1u)>;

#if OUTPUT == quantized
// For 4-bit layers of quantized rows: vectors are of four.
#include quantization/quantize_group

fn normalized(start: u32, i: u32, scale: f32) -> vec4<f32> {
    return load_again(start + i) * scale * V_math(weight[i]);
}

fn store_row(thread: u32, start: u32, scale: f32) {
    for (var i = thread * 8u; i < params.width; i += WG * 8u) {
        store_quantized((start + i) / 8u, Eight(
            normalized(start, i, scale), normalized(start, i + 1u, scale),
            normalized(start, i + 2u, scale), normalized(start, i + 3u, scale),
            normalized(start, i + 4u, scale), normalized(start, i + 5u, scale),
            normalized(start, i + 6u, scale), normalized(start, i + 7u, scale),
        ));
    }
}
#else
fn store_row(thread: u32, start: u32, scale: f32) {
    for (var h = 0u; h < REGISTER_VECTORS; h++) {
        let i = thread + h * WG;
        if (i < params.width) {
            out[start + i] = V(registers[h] * scale * weight_registers[h]);
        }
    }
    for (var i = thread; REGISTER_VECTORS == 0u && i < params.width; i += WG) {
        out[start + i] = V(load_again(start + i) * scale * V_math(weight[i]));
    }
}
#endif

fn each_group(group: u32, thread: u32) {
    if (group >= params.rows) {
        return;
    }
    let start = group * params.width;
    var squares = V_math(0);
    if (REGISTER_VECTORS > 0u) {
        for (var h = 0u; h < REGISTER_VECTORS; h++) {
            let i = thread + h * WG;
            if (i < params.width) {
                registers[h] = load_first(start + i);
                weight_registers[h] = V_math(weight[i]);
                squares += registers[h] * registers[h];
            }
        }
    } else {
        for (var i = thread; i < params.width; i += WG) {
            let value = load_first(start + i);
            squares += value * value;
        }
    }
    let total_of_squares = workgroup_sum(thread, V_sum(squares));
    let scale = inverseSqrt(total_of_squares / f32(params.width * V_lanes) + params.eps);
    store_row(thread, start, scale);
}

#include common/each_group
