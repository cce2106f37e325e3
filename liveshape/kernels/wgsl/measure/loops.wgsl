// How many turns of a loop a thread makes, out of as many as it is told, which no compiler knows.
override WG: u32 = 1;

@group(0) @binding(0) var<storage, read_write> turns: array<u32>; // those that are wanted, then those that were made

@compute @workgroup_size(WG)
fn main() {
    var made = 0u;
    while (made < turns[0]) {
        made += 1u;
        turns[1] = made;
    }
}
