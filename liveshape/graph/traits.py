"""What an operator is to those who do not know it: declared once, where it is defined, and asked for by its node.

A rewrite or a report asks a node for a trait, so that a new operator never edits the rooms that ask. Every trait names
parameters of the operator; `Node.named` has what was given for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

Node = Any  # that of `graph.py`, which has traits
# Which tensors carry rows, each with the axis that they lie along. All of these have the same rows, in the same order.
Carried = Mapping[Any, int]
# Given what a node reads that carries rows, what it gives that does; None where a row may depend on another one, or
# where that cannot be told. It holds if every other size of these tensors is at its bound: the rows alone are live.
# A row of a result is then computed from the same row of each of them, alike for all rows, and from tensors that are
# the same for all rows. Fewer or more rows give as many, and a result that is not named depends on no row.
RowRule = Callable[[Node, Carried], Carried | None]
# Given how its first argument lies (`Strided` in `ops/shapes.py`) and what else it is given, how its results lie in it.
Moves = Callable[..., Any]
# FLOPs of a call (multiplications and additions), from its live arguments by name; live scalars are ints.
Operations = Callable[[Mapping[str, Any]], int]


class Role(Enum):
    """Operators that a rewrite looks for by what they do; each reads them by the parameters of `PARAMETERS`."""

    SLICE = "slice"
    SELECT = "select"  # one index of a dimension; as a live scalar, the first element there
    SIZE = "size"  # a size as a live scalar
    SUM = "sum"  # of live scalars
    FIRST = "first"  # the first element of the first argument, or the scalar that this is
    ATTENTION = "attention"
    PREPACK = "prepack"  # a constant in another layout, which only the exporter's own backend has
    DRAW = "draw"  # random numbers: its plan counts calls


PARAMETERS: Mapping[Role, tuple[str, ...]] = {
    Role.SLICE: ("x", "dim", "start", "end", "step"),
    Role.SELECT: ("x", "dim", "index"),
    Role.SIZE: ("x", "dim"),
    Role.SUM: ("a", "b"),
    Role.ATTENTION: ("q",),
}


@dataclass(frozen=True)
class CacheRows:
    """A node writes new rows of KV caches from `start` on, or reads them up to these, and never accesses a row behind.

    `axes`: the parameters that are caches, each with the axis of positions. `start`: the first new row; given a table
    of rows, each is written to a slot of its own along the axis instead.
    `unless_masked`: a mask speaks of rows behind as well, so with one this does not hold, but for a `causal` call.
    """

    axes: Mapping[str, int]
    start: str | None = None
    unless_masked: str | None = None
    causal: str | None = None

    def holds(self, named: Mapping[str, Any]) -> bool:
        """Whether a call with these arguments accesses KV-cache rows alone."""
        masked = self.unless_masked is not None and named[self.unless_masked] is not None
        return not masked or (self.causal is not None and named[self.causal] is True)


@dataclass(frozen=True)
class PositionTables:
    """Constants with a row for every position, of which a node reads those of its rows.

    These are from `start` on, or each at the position of a table of rows that is given for it.
    """

    tables: tuple[str, ...]
    start: str


@dataclass(frozen=True)
class Product:
    """A matrix product that a profile counts by its `operations`; with a `weight`, one of `rows` and that.

    A `linear` one gives rows of as many columns as the weight has, and changes no other size. One of `int8_rows` takes
    its rows quantized to eight bits, too, if the dtype of its weight says so; a `normed` one normalizes them first.
    """

    operations: Operations
    rows: str | None = None
    weight: str | None = None
    linear: bool = False
    int8_rows: bool = False
    normed: bool = False


@dataclass(frozen=True)
class Traits:
    """All that `@op` declares of an operator beside how it runs.

    `rows`: what it does to rows. `moves`: where its results lie in its first argument, see `ops/movement.py`. `role`:
    what rewrites look for it as. `any_size`: no argument of it can stand for a context, so it does the same at every
    size and position. `cheap_to_keep`: its results are small or exist anyway, so equal nodes become one.
    `reads_as_written`: it reads no more than it writes. `for_one_row`: outputs that are written only while one row is
    live. `fused_from`: the operators that it stands for, by their names. `pointwise`: the expression of its arguments,
    see `ops/pointwise.py`. `epilogues`: it stores each element of its one output once, so that an expression of it may
    be stored instead, see `ops/composed.py`. `loads`: a tensor in the place of which it may load an expression, see
    `ops/composed.py`, an element up to `load_times`. `first_alone`: the operator of the same arguments that gives its
    first result and none of the others. `channels_last`: the operator of the same arguments whose images have their
    channels last, see `lower/image_layout.py`; `moves_images`: what that gives are elements of its images.
    """

    rows: RowRule | None = None
    moves: Moves | None = None
    role: Role | None = None
    cache: CacheRows | None = None
    tables: PositionTables | None = None
    product: Product | None = None
    any_size: bool = False
    cheap_to_keep: bool = False
    reads_as_written: bool = False
    for_one_row: tuple[int, ...] = ()
    fused_from: tuple[str, ...] = ()
    pointwise: Callable[..., Any] | None = None
    epilogues: bool = False
    loads: str = ""
    load_times: int = 1
    first_alone: str = ""
    channels_last: str = ""
    moves_images: bool = False

    def parameters(self) -> set[str]:
        """The parameters that an operator with these traits must have."""
        found = set(PARAMETERS.get(self.role, ())) if self.role is not None else set()
        if self.cache is not None:
            given = (self.cache.start, self.cache.unless_masked, self.cache.causal)
            found |= {*self.cache.axes, *(name for name in given if name is not None)}
        found |= {self.loads} - {""}
        if self.tables is not None:
            found |= {*self.tables.tables, self.tables.start}
        if self.product is not None:
            found |= {name for name in (self.product.rows, self.product.weight) if name is not None}
        return found


NOTHING_KNOWN = Traits()
