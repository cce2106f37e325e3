// Elements that a thread adds up before it adds their sum to its own: rounding errors grow with that, not with a row.
const BLOCK: u32 = 32;
