// The tiles of a matrix product: where one begins, of which of a batch, and its share of the depth.
struct Tile {
    exists: bool,
    batch: u32,
    result: u32, // the batch of its sums
    first_row: u32,
    first_column: u32,
    first_k: u32,
    last_k: u32,
}

fn tile_at(index: u32) -> Tile {
    // Tiles of one band of columns are neighbours, so that its part of the right factor stays in the cache.
    let row_tiles = (params.rows + TILE_ROWS - 1u) / TILE_ROWS;
    let column_tiles = (params.columns + TILE_COLUMNS - 1u) / TILE_COLUMNS;
    var tile: Tile;
    let share = share_of(index / (row_tiles * column_tiles));
    tile.batch = share.batch;
    tile.result = share.result;
    tile.exists = share.result < shares();
    tile.first_row = (index % row_tiles) * TILE_ROWS;
    tile.first_column = (index / row_tiles % column_tiles) * TILE_COLUMNS;
    tile.first_k = share.first_k;
    tile.last_k = share.last_k;
    return tile;
}
