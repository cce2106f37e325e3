// Tiles of floats: the weight is dequantized before it is staged, the depth lies outermost.
override SCALE_SPAN: u32 = 4; // how many neighbours of the depth surely share a scale: 4 or 1
override UNROLLED: u32 = 1; // places of the depth

const STEP: u32 = 16; // of the depth
const BLOCKS: u32 = (ROWS + COLUMNS) * STEP / 4; // of 4 x 4 numbers
const LOADS: u32 = (BLOCKS + WG - 1) / WG;
// Neighbours of the depth that are stored together lie in different banks: one more between them, or swizzled.
const PITCH: u32 = ROWS + COLUMNS + select(1u, 0u, LARGE);

alias Load = mat4x4<f32>;

var<workgroup> tile: array<vec4<f32>, STEP * PITCH>;

#include q4/float_operands
#include q4/column_vectors

fn swizzle(k: u32) -> u32 {
    return select(0u, k / 4u % 4u * 2u, LARGE);
}

fn block_of_x(row: u32, k: u32) -> Load {
    let last = params.rows - 1u;
    return transpose(mat4x4<f32>(
        x_four(min(row, last), k), x_four(min(row + 1u, last), k),
        x_four(min(row + 2u, last), k), x_four(min(row + 3u, last), k),
    ));
}

fn block_of_weight(column: u32, k: u32) -> Load {
    let columns = columns_from(column);
    // All loads before what is computed of them.
    let words = vec4<u32>(four_at(columns.x, k), four_at(columns.y, k), four_at(columns.z, k), four_at(columns.w, k));
    let scale = scale_four(columns.x, k);
    let minimum = minimum_four(columns.x, k);
    let codes = transpose(mat4x4<f32>(
        codes_of(words.x, k), codes_of(words.y, k), codes_of(words.z, k), codes_of(words.w, k),
    ));
    if (SCALE_SPAN == 1u) {
        return dequantized_each(codes, columns.x, k);
    }
    return mat4x4<f32>(
        dequantized(codes[0], scale, minimum), dequantized(codes[1], scale, minimum),
        dequantized(codes[2], scale, minimum), dequantized(codes[3], scale, minimum),
    );
}

fn fetch(load: u32, first_row: u32, first_column: u32, step: u32, last_step: u32) -> Load {
    let k = step * STEP + load % 4u * 4u;
    let four = load / 4u;
    if (!LARGE && k >= min(last_step * STEP, params.depth)) {
        return Load();
    }
    if (four < COLUMNS) {
        return block_of_weight(first_column + four * 4u, k);
    }
    return block_of_x(first_row + (four - COLUMNS) * 4u, k);
}

fn stage(load: u32, block: Load, buffer: u32) {
    if (LARGE || load < BLOCKS) {
        let k = load % 4u * 4u;
        let place = k * PITCH + ((load / 4u) ^ swizzle(k));
        tile[place] = block[0];
        tile[place + PITCH] = block[1];
        tile[place + 2u * PITCH] = block[2];
        tile[place + 3u * PITCH] = block[3];
    }
}
