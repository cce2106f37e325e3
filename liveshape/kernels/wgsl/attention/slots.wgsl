// Rows may be consecutive, or have a line (position, slot) each in a table.
#choice POSITIONS: consecutive, table
#if POSITIONS == table
// The row of a cache where a row belongs; a negative one lies behind every cache.
fn slot_of(row: u32) -> u32 {
    return u32(row_table[row].y);
}
#endif
