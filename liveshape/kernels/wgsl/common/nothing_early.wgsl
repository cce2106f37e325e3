// For kernels that load what their epilogue reads where they store: see common/matrix_blocks.wgsl.
alias Early = u32;
alias Columns = u32;

fn early(row: u32, column: u32) -> Early {
    return Early();
}

fn columns_of(column: u32) -> Columns {
    return Columns();
}
