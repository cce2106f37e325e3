// Rows as halves for matrix units, each divided by a power of two that keeps its largest number in their range; of a
// tensor, or of its RMSNorm, which is rounded as a tensor of its own would be. A workgroup takes ROWS rows; the depth is
// a multiple of 8.
// unchecked: rows and depth are those of the tensors, which planning checked; blocks have room for whole fours of rows.
#choice OF: tensor, rms_norm
// T: f32, f16
override WG: u32 = 256;
override ROWS: u32 = 4; // 4 neighbours write whole lines, 1 begins and ends sooner where rows are few

const THREADS: u32 = WG / ROWS; // of a row

struct Params {
    rows: u32,
    depth: u32,
#if OF == rms_norm
    eps: f32,
#endif
}
@group(0) @binding(0) var<storage, read_write> halves: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<T>>;
#if OF == rms_norm
@group(0) @binding(2) var<storage, read> weight: array<vec4<T>>;
#endif

var<workgroup> partials: array<f32, WG>;

#include quantization/half_exponent
#include quantization/half_blocks

// Of the threads of a row, whose result stays at its place until the next reduction.
fn reduced(thread: u32, mine: f32, adds: bool) -> f32 {
    partials[thread] = mine;
    for (var half = WG / 2u; half >= ROWS; half /= 2u) {
        workgroupBarrier();
        if (thread < half) {
            let other = partials[thread + half];
            partials[thread] = select(max(partials[thread], other), partials[thread] + other, adds);
        }
    }
    workgroupBarrier();
    return partials[thread % ROWS];
}

#if OF == rms_norm
// 1 / RMS of a row.
fn row_scale(thread: u32, begin: u32, eights: u32) -> f32 {
    var squares = vec4<f32>();
    for (var i = thread / ROWS; i < eights; i += THREADS) {
        let low = vec4<f32>(x[(begin + i) * 2u]);
        let high = vec4<f32>(x[(begin + i) * 2u + 1u]);
        squares += low * low + high * high;
    }
    let sum = reduced(thread, squares.x + squares.y + squares.z + squares.w, true);
    workgroupBarrier();
    return inverseSqrt(sum / f32(params.depth) + params.eps);
}

fn four_at(begin: u32, four: u32, scale: f32) -> vec4<f32> {
    return vec4<f32>(vec4<T>(vec4<f32>(x[begin * 2u + four]) * scale * vec4<f32>(weight[four])));
}
#else
fn row_scale(thread: u32, begin: u32, eights: u32) -> f32 {
    return 1.0;
}

fn four_at(begin: u32, four: u32, scale: f32) -> vec4<f32> {
    return vec4<f32>(x[begin * 2u + four]);
}
#endif

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let eights = params.depth / 8u;
    for (var first = group_index(group, grid) * ROWS; first < params.rows; first += grid.x * grid.y * grid.z * ROWS) {
        let row = first + thread % ROWS;
        let begin = min(row, params.rows - 1u) * eights;
        let of_row = row_scale(thread, begin, eights);
        var most = vec4<f32>();
        for (var i = thread / ROWS; i < eights; i += THREADS) {
            most = max(most, max(abs(four_at(begin, i * 2u, of_row)), abs(four_at(begin, i * 2u + 1u, of_row))));
        }
        let scale = half_scale(reduced(thread, max(max(most.x, most.y), max(most.z, most.w)), false));
        if (thread < ROWS && row < params.rows) {
            halves[first_factor(params.rows, eights) + row] = vec4<u32>(bitcast<u32>(scale.factor));
        }
        for (var i = thread / ROWS; i < eights; i += THREADS) {
            halves[half_place(row, i, eights)] = eight_halves(
                four_at(begin, i * 2u, of_row) * scale.inverse, four_at(begin, i * 2u + 1u, of_row) * scale.inverse,
            );
        }
        workgroupBarrier();
    }
}
