// What an epilogue reads for a place of `out`: loaded for several places at once, before the first of them is stored,
// since no load passes a store. It is empty here; kernels/composition.py writes that of an expression in its place.
alias Ahead = u32;

var<private> at_hand: Ahead; // of the place that is stored next

fn ahead_of(place: u32) -> Ahead {
    return Ahead();
}
