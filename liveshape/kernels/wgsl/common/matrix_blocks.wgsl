// What workgroups have that multiply by matrix units, halves summed in floats or bytes in integers: a tile of both factors,
// a step of the depth at a time, of which each subgroup sums BLOCKS_DOWN by BLOCKS_ACROSS matrices. A kernel stages the
// tiles, with common/matrix_sums.wgsl before its loop over the depth, common/matrix_step.wgsl in it and
// common/matrix_store.wgsl behind it, and says what becomes of the sums of four columns of a row (store_sums), of which
// the first exists, and what is loaded for that before: of any row (columns_of), and of this one (early). Behind the loop
// the sums take the place of both factors, a row of matrices of each subgroup at a time: with more memory fewer workgroups
// run at once.
#choice FACTORS: halves, bytes, split
override LANES: u32 = 32; // of a subgroup
override MATRIX_ROWS: u32 = 16;
override MATRIX_COLUMNS: u32 = 16;
override MATRIX_DEPTH: u32 = 16;
override SUBGROUPS_DOWN: u32 = 2; // of the workgroup
override BLOCKS_DOWN: u32 = 4; // matrices of a subgroup
override BLOCKS_ACROSS: u32 = 4;
override BLOCKS_DEEP: u32 = 2; // of a step of the depth
override ROW_LOADS: u32 = 4; // vectors of 16 bytes that a thread stages in a step
override COLUMN_LOADS: u32 = 4;
override SUM_STEPS: u32 = 4; // of split factors, whose sums of matrices then go to those of threads
override EARLY: bool = false; // kernels/composition.py: whether an epilogue is a few instructions, and has operands
override STORE_TURNS: u32 = 8; // of a subgroup over the sums of a row of its matrices, four columns a thread

const SUBGROUPS_ACROSS: u32 = WG / LANES / SUBGROUPS_DOWN;
const OWN_ROWS: u32 = BLOCKS_DOWN * MATRIX_ROWS; // of a subgroup
const OWN_COLUMNS: u32 = BLOCKS_ACROSS * MATRIX_COLUMNS;
const TILE_ROWS: u32 = SUBGROUPS_DOWN * OWN_ROWS;
const TILE_COLUMNS: u32 = SUBGROUPS_ACROSS * OWN_COLUMNS;
const STEP: u32 = BLOCKS_DEEP * MATRIX_DEPTH;
const STEP_VECTORS: u32 = PARTS * STEP / PER_VECTOR; // a divisor of WG: a thread stages the same one of every row and column
const PITCH: u32 = STEP_VECTORS + 1; // one more, so that rows begin in different banks
const COLUMNS_AT: u32 = TILE_ROWS * PITCH; // where the tile of columns begins
const OWN_FOURS: u32 = OWN_COLUMNS / 4;
const SUM_PITCH: u32 = OWN_FOURS + 2; // of a row of sums: units store two of a row to eight banks at once
const SUMS: u32 = WG / LANES * MATRIX_ROWS * SUM_PITCH;

#if FACTORS == split
const PARTS: u32 = 2; // that a number is the sum of: see matmul/split_halves.wgsl
#else
const PARTS: u32 = 1;
#endif
#if FACTORS == bytes
const PER_VECTOR: u32 = 16; // neighbours of the depth

alias Left = subgroup_matrix_left<i8, MATRIX_DEPTH, MATRIX_ROWS>;
alias Right = subgroup_matrix_right<i8, MATRIX_COLUMNS, MATRIX_DEPTH>;
alias Total = i32;
#else
const PER_VECTOR: u32 = 8;

alias Left = subgroup_matrix_left<f16, MATRIX_DEPTH, MATRIX_ROWS>;
alias Right = subgroup_matrix_right<f16, MATRIX_COLUMNS, MATRIX_DEPTH>;
alias Total = f32;
#endif
alias Sum = subgroup_matrix_result<Total, MATRIX_COLUMNS, MATRIX_ROWS>;

var<workgroup> tile: array<vec4<u32>, max(COLUMNS_AT + TILE_COLUMNS * PITCH, SUMS)>;

const SAME_COLUMNS: bool = LANES % OWN_FOURS == 0u; // of a thread, wherever it stores

// The first of four columns of which one exists.
fn near_column(column: u32) -> u32 {
    return min(column, params.columns - 1u) / 4u * 4u;
}

// Stores the sums of a place of the row of matrices that its subgroup has in the tile.
fn store_place(place: u32, own_row: u32, own_four: u32, row: u32, column: u32, given: Early, columns: Columns) {
    if (own_row < MATRIX_ROWS && row < params.rows && column < params.columns) {
        let sums = tile[(place * MATRIX_ROWS + own_row) * SUM_PITCH + own_four];
        store_sums(row, column, bitcast<vec4<Total>>(sums), given, columns);
    }
}
