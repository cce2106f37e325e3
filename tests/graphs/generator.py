"""Random programs of 5 to 60 nodes, each the same for the same seed."""

from __future__ import annotations

from typing import Any

from tests.graphs import attentions, elementwise, expressions, movement, pictures, portable, structures
from tests.graphs.program import Program, Ref
from tests.graphs.writer import Writer

# How often each family is asked, among nodes that are alone.
SINGLE = {
    elementwise.unary: 5,
    elementwise.whole_unary: 2,
    elementwise.binary: 8,
    elementwise.with_number: 3,
    elementwise.compare: 2,
    elementwise.where: 2,
    elementwise.convert: 2,
    elementwise.reduction: 3,
    elementwise.cumsum: 1,
    elementwise.softmax: 2,
    elementwise.rms_norm: 2,
    elementwise.layer_norm: 1,
    elementwise.product: 4,
    expressions.rare: 3,
    expressions.pair: 2,
    movement.view: 8,
    movement.turned: 3,
    movement.expand: 2,
    movement.part: 4,
    movement.split: 2,
    movement.join: 3,
    movement.scatter: 1,
    movement.created: 1,
    movement.lookup: 3,
    movement.in_place: 4,
    structures.scalar: 3,
    pictures.convolution: 8,
    pictures.pool: 5,
    pictures.resample: 4,
    pictures.rearranged: 4,
    pictures.group_norm: 2,
    portable.ordered: 2,
    portable.scattered: 2,
    portable.masked: 3,
    portable.halved: 1,
    portable.counted: 2,
    portable.quantized: 3,
    portable.dequantized: 1,
    portable.eight_bits: 3,
}
SEVERAL = {
    expressions.tree: 8,
    expressions.epilogue: 8,
    movement.state: 2,
    movement.rewritten: 2,
    structures.quantized: 2,
    structures.gated_unit: 2,
    structures.three_layers: 2,
    structures.sum_and_norm: 2,
    structures.residual: 3,
    structures.attention: 3,
    structures.sampled: 1,
    structures.unused: 1,
}
JUMPING = {structures.branch: 3, structures.skipped: 2, structures.loop: 2, structures.mapped: 1}
JUMPS = 0.35  # the share of programs that have any


def weighted(families: dict[Any, int]) -> list[Any]:
    """Every family as often as it is asked."""
    return [family for family, weight in families.items() for _ in range(weight)]


def random_program(seed: int) -> Program:
    """The program of a seed."""
    return _program(seed, SEVERAL)


def attention_program(seed: int) -> Program:
    """The program of a seed where some nodes are attention that is spelled out."""
    return _program(seed, SEVERAL | {attentions.spelled: 60})


def _program(seed: int, families: dict[Any, int]) -> Program:
    w = Writer(seed)
    single, several, jumping = (weighted(each) for each in (SINGLE, families, JUMPING))
    forms = [(1, "S", 24), ("S", 24), ("S",), ("T", 8), (1, 2, "S", 6), (1, "S", 4, 6), (24,), ("T", "S")]
    w.input(w.shapes(1, "S", 24))
    for form in w.chance.sample(forms, w.chance.randint(1, 3)):
        kind = w.chance.choice(("float32", "float32", "float32", "float16", "bfloat16", "int32", "int64", "bool"))
        exact = w.chance.random() < 0.4
        w.input(w.shapes(*form), kind, *((-4, 4) if exact or kind != "float32" else (-2, 2)), exact)
    if w.stateful and w.chance.random() < 0.5:
        movement.state(w)
    jumps = w.chance.random() < JUMPS
    wanted = w.chance.choice((5, 8, 12, 16, 20, 25, 30, 40, 50))
    tries = 0
    while len(w.calls) < wanted and tries < 4 * wanted:
        tries += 1
        before = len(w.pool)
        if jumps and w.chance.random() < 0.12:
            w.chance.choice(jumping)(w, single)
        else:
            w.chance.choice(single if w.chance.random() < 0.8 else several)(w)
        for ref in w.pool[before:]:
            if w[ref].role == "result":
                elementwise.bounded(w, ref)
    return w.program(outputs(w))


def outputs(w: Writer) -> list[Ref]:
    """Late results, early ones, an input, a state, a scalar, and one of them twice."""
    made = [ref for ref in w.pool if w[ref].role == "result"] or w.pool
    chosen = made[-w.chance.randint(1, 4) :]
    chosen += [w.chance.choice(made) for _ in range(w.chance.randint(0, 3))]
    if w.chance.random() < 0.2:
        chosen.append(w.chance.choice([ref for ref in w.pool if w[ref].role == "input"]))
    states = [Ref(number) for number, known in enumerate(w.known) if known.role == "state"]
    if states and w.chance.random() < 0.5:
        chosen.append(w.chance.choice(states))
    if w.scalars and w.chance.random() < 0.3:
        chosen.append(w.chance.choice(w.scalars))
    if w.chance.random() < 0.2:
        chosen.append(w.chance.choice(chosen))
    return chosen
