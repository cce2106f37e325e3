// GEMM of rows of halves by the matrix units of a device: see common/matrix_blocks.wgsl. The next step is prefetched to
// registers. Many rows take the weight as q4/half_weight.wgsl unpacked it, with its factors in the place of
// scales; few take it PACKED, as nibbles, and unpack them to the tile. What rows and columns were divided by is given
// back to the sums.
// unchecked: places in the tile follow from constants, those in memory are held below the sizes that planning checked.
override WG: u32 = 128;
override PACKED: bool = false;

@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
#include q4/layer
#include q4/epilogue
#include common/matrix_blocks
#include common/nothing_early
#include q4/weight_codes
#include q4/halves
#include quantization/half_exponent
#include quantization/half_blocks

const ROWS: u32 = TILE_ROWS / 4; // in vec4s
const COLUMNS: u32 = TILE_COLUMNS / 4;
const ROW_RUN: u32 = min(TILE_ROWS, BLOCK_ROWS);
const COLUMN_RUN: u32 = min(TILE_COLUMNS, BLOCK_ROWS);
#if PACKED
const VECTORS: u32 = STEP / 32; // of a column in a step
const COLUMN_THREADS: u32 = WG / TILE_COLUMNS;

var<workgroup> largest_of: array<f32, WG>;
#endif

// Where the vector lies that a thread stages at first, of `run` rows of a block. A split may have no step at all.
fn first_load(load: u32, run: u32, first: u32, count: u32, first_step: u32) -> u32 {
    let step = min(first_step, params.depth / STEP - 1u);
    let block = min((first + load / (run * STEP_VECTORS) * run) / BLOCK_ROWS, (count - 1u) / BLOCK_ROWS);
    let eight = block * (params.depth / 8u) + step * STEP_VECTORS + load % (run * STEP_VECTORS) / run;
    return eight * BLOCK_ROWS + first % BLOCK_ROWS + load % run;
}

fn staged(load: u32, run: u32) -> u32 {
    return (load / (run * STEP_VECTORS) * run + load % run) * PITCH + load % (run * STEP_VECTORS) / run;
}

fn row_factor(row: u32) -> f32 {
    return bitcast<f32>(x[first_factor(params.rows, params.depth / 8u) + row].x);
}

fn store_sums(row: u32, column: u32, four: vec4<f32>, given: Early, columns: Columns) {
#if PACKED
    let own = column % TILE_COLUMNS;
    let factor = vec4<f32>(largest_of[own], largest_of[own + 1u], largest_of[own + 2u], largest_of[own + 3u]);
#else
    let factor = vec4<f32>(scales[column / 4u]);
#endif
    let other = vec4<f32>(row_factor(row));
    store_four(row, column, four * min(factor, other) * max(factor, other)); // as given_back of common/half_factors.wgsl
}

#if PACKED
// 32 neighbours of a column, as they are.
struct Packed {
    words: vec4<u32>,
    scale: f32,
    minimum: f32,
}

fn packed_at(vectors: u32, column: u32, vector: u32) -> Packed {
    let at = vector * 32u / GROUP * params.scale_stride + column;
    return Packed(weight[vectors + vector], scale_one(at), minimum_one(at));
}

fn stage_packed(column: u32, vector: u32, given: Packed, inverse: f32) {
    for (var i = 0u; i < 4u; i++) {
        tile[COLUMNS_AT + column * PITCH + vector * 4u + i] =
            eight_of(given.words[i], 0u, given.scale * inverse, given.minimum * inverse);
    }
}

// What a thread's column is divided by in this split of the depth; the factors of the tile stay in `largest_of`.
fn column_scale(thread: u32, column: u32, first_step: u32, last_step: u32) -> HalfScale {
    let groups = (last_step * STEP + GROUP - 1u) / GROUP;
    largest_of[thread] = largest_weight(column, first_step * STEP / GROUP + thread / TILE_COLUMNS, groups, COLUMN_THREADS);
    workgroupBarrier();
    var most = 0.0;
    for (var i = 0u; i < COLUMN_THREADS; i++) {
        most = max(most, largest_of[thread % TILE_COLUMNS + i * TILE_COLUMNS]);
    }
    workgroupBarrier();
    let scale = half_scale(most);
    largest_of[thread] = scale.factor;
    return scale;
}
#endif

fn compute(thread: u32, first_row: u32, first_column: u32, first_step: u32, last_step: u32) {
#include common/matrix_sums
#unroll i < ROW_LOADS
    var row_load_$i = first_load(thread + $iu * WG, ROW_RUN, first_row, params.rows, first_step);
    var next_row_$i = x[row_load_$i];
#endunroll
#if PACKED
    let column = min(first_column + thread % TILE_COLUMNS, params.columns - 1u);
    let scale = column_scale(thread, column, first_step, last_step);
    let last_vector = params.depth / 32u - 1u;
    let vectors = column * (params.column_bytes / 16u);
    let first_vector = first_step * VECTORS + thread / TILE_COLUMNS;
#unroll i < COLUMN_LOADS
    var next_column_$i = packed_at(vectors, column, min(first_vector + $iu * COLUMN_THREADS, last_vector));
#endunroll
#else
#unroll i < COLUMN_LOADS
    var column_load_$i = first_load(thread + $iu * WG, COLUMN_RUN, first_column, params.columns, first_step);
    var next_column_$i = weight[column_load_$i];
#endunroll
#endif
    for (var step = first_step; step < last_step; step++) {
#unroll i < ROW_LOADS
        tile[staged(thread + $iu * WG, ROW_RUN)] = next_row_$i;
#endunroll
#unroll i < COLUMN_LOADS
#if PACKED
        stage_packed(thread % TILE_COLUMNS, thread / TILE_COLUMNS + $iu * COLUMN_THREADS, next_column_$i, scale.inverse);
#else
        tile[COLUMNS_AT + staged(thread + $iu * WG, COLUMN_RUN)] = next_column_$i;
#endif
#endunroll
        workgroupBarrier();
        let ahead = select(0u, STEP_VECTORS * BLOCK_ROWS, step + 1u < last_step);
#unroll i < ROW_LOADS
        row_load_$i += ahead;
        next_row_$i = x[row_load_$i];
#endunroll
#unroll i < COLUMN_LOADS
#if PACKED
        let vector_$i = first_vector + (step + 1u - first_step) * VECTORS + $iu * COLUMN_THREADS;
        next_column_$i = packed_at(vectors, column, min(vector_$i, last_vector));
#else
        column_load_$i += ahead;
        next_column_$i = weight[column_load_$i];
#endif
#endunroll
#include common/matrix_step
        workgroupBarrier();
    }
#include common/matrix_store
}

#include q4/tile_grid
