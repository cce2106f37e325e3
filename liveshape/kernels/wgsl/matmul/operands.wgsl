// What the two matmul kernels share: four neighbours of either factor at a time, and the epilogue.
// The right factor is [N, K] where TRANSPOSED (the weight of a linear layer), else [K, N].
#choice WEIGHT: floats, nibbles
#if WEIGHT == nibbles
// The right factor [K, N] is nibbles, eight to a word and offset by 8, its rows without gaps; a scale belongs to GROUP
// neighbours of a row and lies in [N / GROUP, K].
// TScale: f32, f16
override GROUP: u32 = 32;
override SCALE_STRIDE: u32 = 1; // at least K
#endif
override TRANSPOSED: bool = false;
override ADDEND: bool = false;

struct Params {
    batch: u32,
    rows: u32, // M
    columns: u32, // N
    depth: u32, // K
    x_stride: u32, // elements between the left factors of a batch; 0 where they are one
    weight_stride: u32,
    addend_batch_stride: u32,
    addend_row_stride: u32,
    addend_column_stride: u32,
    alpha: f32,
    beta: f32,
    low: f32,
    high: f32,
}
@group(0) @binding(0) var<storage, read_write> out: array<T>;
@group(0) @binding(1) var<storage, read> x: array<V>;
@group(0) @binding(2) var<storage, read> addend: array<T>;

#if WEIGHT == nibbles
@group(0) @binding(3) var<storage, read> weight: array<u32>;
@group(0) @binding(4) var<storage, read> scales: array<TScale>;
@group(0) @binding(5) var<uniform> params: Params;
#else
@group(0) @binding(3) var<storage, read> weight: array<V>;
@group(0) @binding(4) var<uniform> params: Params;
#endif

#include common/clamped

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

#if WEIGHT == nibbles
#include q4/nibbles

fn scale_of(i: u32) -> f32 {
    return f32(scales[i % params.columns / GROUP * SCALE_STRIDE + i / params.columns]);
}

fn weight_one(i: u32) -> f32 {
    return (f32((weight[i / 8u] >> (i % 8u * 4u)) & 15u) - 8.0) * scale_of(i);
}

fn weight_four(i: u32) -> vec4<f32> {
    // Rows of a multiple of four: the four are of one row and one word.
    if (V_lanes == 4u && GROUP % 4u == 0u) {
        return four_of(weight[i / 8u] >> (i % 8u * 4u)) * scale_of(i);
    }
    return vec4<f32>(weight_one(i), weight_one(i + 1u), weight_one(i + 2u), weight_one(i + 3u));
}
#else
fn weight_one(i: u32) -> f32 {
    return V_at(V_math(weight[i / V_lanes]), i % V_lanes);
}

fn weight_four(i: u32) -> vec4<f32> {
    if (V_lanes == 4u) {
        let four = V_math(weight[i / V_lanes]);
        return vec4<f32>(V_at(four, 0u), V_at(four, 1u), V_at(four, 2u), V_at(four, 3u));
    }
    return vec4<f32>(weight_one(i), weight_one(i + 1u), weight_one(i + 2u), weight_one(i + 3u));
}
#endif

fn weight_within(i: u32, count: u32) -> vec4<f32> {
    if (count >= 4u) {
        return weight_four(i);
    }
    var four = vec4<f32>();
    for (var lane = 0u; lane < count; lane++) {
        four[lane] = weight_one(i + lane);
    }
    return four;
}

fn store(batch: u32, row: u32, column: u32, product: f32) {
    if (row >= params.rows || column >= params.columns) {
        return;
    }
    var value = product * params.alpha;
    if (ADDEND) {
        let place = batch * params.addend_batch_stride + row * params.addend_row_stride
            + column * params.addend_column_stride;
        value += params.beta * f32(addend[place]);
    }
    out[(batch * params.rows + row) * params.columns + column] = T(clamped(value));
}
