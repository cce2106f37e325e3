// The sequences of a batch, one behind the other: a line says which queries of which sequence a workgroup takes. A unit
// is a block of the rows of a line and of one head of keys.
struct Params {
    units: u32,
    blocks: u32, // of rows, per head of keys
    key_heads: u32,
    group: u32,
    rows: u32, // of the longest line
    splits: u32, // of the context, each for a workgroup of its own
    split_keys: u32,
    first_line: u32,
    table_row: u32, // pages of a sequence in the block table
    query_row: u32,
    query_head: u32,
    key_row: u32,
    key_head: u32,
    window: u32, // the last keys that a query sees
    softcap: f32,
    scale: f32,
    hidden: f32, // -inf, which no literal can say
}

struct Unit {
    head: u32, // of keys
    block: u32,
    rows: u32, // queries of the line times group
    first: u32, // query of the line
    position: u32, // of that query in its sequence
    pages: u32, // where those of the sequence begin in the block table
}

fn unit_at(index: u32) -> Unit {
    let head = index / params.blocks;
    let line = vec4<u32>(lines[params.first_line + head / params.key_heads]);
    let rows = line.y * params.group;
    return Unit(head % params.key_heads, index % params.blocks, rows, line.x, line.z, line.w * params.table_row);
}

// Where a row of queries begins; that of the output, too, which has the same shape. Past the last comes the last again.
fn query_place(unit: Unit, row: u32) -> u32 {
    let real = min(row, unit.rows - 1u);
    let head = unit.head * params.group + real % params.group;
    return (unit.first + real / params.group) * params.query_row + head * params.query_head;
}

fn out_place(unit: Unit, row: u32) -> u32 {
    return query_place(unit, row);
}

fn unseen_row() -> f32 {
    return 0.0;
}
