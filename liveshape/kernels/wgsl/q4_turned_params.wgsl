    first_row: u32, // of the tables
    cache_start: u32, // elements of a cache before the first new row
