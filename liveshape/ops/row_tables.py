"""Tables of rows: rows of many sequences in one call have a line (position, slot) each in an int32 tensor [R, 2].

A position is the row of tables of angles that a row is rotated by; kernels clamp it to these. A slot is the row of a
cache that a new row is written to; one outside of the cache, such as -1, writes nothing. Both are in one tensor since a
fused epilogue has no more than one binding left for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from liveshape.errors import ShapeError
from liveshape.graph import Node, Tensor
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Carried, RowRule
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.row_rules import nothing_but

ROWS_TO_SLOTS = Kernel.load("attention/cache_update", POSITIONS="table", CACHES="one")

Start = int | LiveTensor  # of rows that are consecutive, or the table of rows that are not


class RowKernels(NamedTuple):
    """A kernel for consecutive rows, and the same for rows by a table, which it binds behind all others."""

    consecutive: Kernel
    by_table: Kernel

    @classmethod
    def load(cls, name: str, **choices: str) -> RowKernels:
        """The kernels of `liveshape/kernels/wgsl/<name>.wgsl`, which includes attention/slots.wgsl."""
        return cls(Kernel.load(name, **choices), Kernel.load(name, **choices, POSITIONS="table"))


def check_row_table(table: LiveTensor, rows: int) -> None:
    """Whether a table has a line for each of some rows.

    Example: `check_row_table(places, x.shape[1])`.
    """
    if table.shape != (rows, 2):
        raise ShapeError(f"a table of rows {table.shape}: {(rows, 2)} is needed, a position and a slot for each row")


def first_row(start: Start | None, position: Start) -> Start:
    """The first row of the tables of angles, or the table of rows, which must be that of the cache's slots as well.

    `start` is None where the tables of angles are of the rows themselves.
    """
    if isinstance(start, LiveTensor) or isinstance(position, LiveTensor):
        if start is not None and start is not position:
            raise ShapeError(f"rows at {start} among angles and at {position} of a cache need one table for both")
        return position
    return 0 if start is None else start


def axis_by_table(node: Node, carried: Carried, starts: Sequence[str], *names: str) -> int | None:
    """The axis along which all of these tensors carry rows, each with its line of the table given as `starts`."""
    tables = [node.named[name] for name in starts if node.named[name] is not None]
    by_table = all(isinstance(table, Tensor) and carried.get(table) == 0 for table in tables)
    axes = {carried.get(node.named[name]) for name in names if node.named[name] is not None}
    return axes.pop() if by_table and len(axes) == 1 and nothing_but(node, carried, *starts, *names) else None


def rows_of_cache(*names: str, start: str) -> RowRule:
    """New rows [B, S, ..] of a cache, each written to its slot: no result has them.

    Example: `@op("update_cache.default", rows=rows_of_cache("value", start="start_pos"))`.
    """

    def rule(node: Node, carried: Carried) -> Carried | None:
        return {} if axis_by_table(node, carried, (start,), *names) == 1 else None

    return rule


def rows_to_slots(value: LiveTensor, cache: LiveTensor, table: LiveTensor) -> Dispatch:
    """Rows [B, S, ..] to their slots in a cache [B, slots, ..]."""
    width, count = prod(value.shape[2:]), value.numel
    return ROWS_TO_SLOTS(
        cache, value, table, count=count, run=value.shape[1] * width, width=width,
        cache_stride=cache.shape[1] * width, threads=count,
    )  # fmt: skip
