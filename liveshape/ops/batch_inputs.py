"""The inputs of a step of many sequences: one array from the host, since every write to the device costs as much."""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.errors import ShapeError
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.registry import Tensors, op
from liveshape.ops.sampling import SETTING_COLUMNS

UNPACK_TABLES = Kernel.load("movement/unpack_tables")

PLACE, LINE = 2, 4  # numbers of a row's place (position, slot), and of a line of attention


def packed_size(rows: int, wanted: int, lines: int, sequences: int, pages: int) -> int:
    """Numbers of the packed tables: tokens, sources, places, wanted rows, lines, settings, block table.

    >>> packed_size(rows=1, wanted=1, lines=1, sequences=1, pages=2)
    20
    """
    return rows * (2 + PLACE) + wanted * (1 + len(SETTING_COLUMNS)) + lines * LINE + sequences * pages


@op("liveshape.unpack_tables")
def unpack_tables(
    packed: LiveTensor,
    previous: LiveTensor,  # the tokens that the step before sampled
    rows: int,
    wanted: int,
    lines: int,
    sequences: int,
    pages: int,
    out: Tensors,
) -> Iterator[Dispatch]:
    """Tokens [1, R], places [R, 2], wanted rows [W], lines [U, 4], settings [W, ..] and the block table [S, P].

    The order in `packed` is theirs, with a source of each token behind the tokens: see `packed_size`.
    """
    tokens, places, wanted_rows, units, settings, block_table = out
    tokens.shape, places.shape, wanted_rows.shape = (1, rows), (rows, PLACE), (wanted,)
    units.shape, settings.shape = (lines, LINE), (wanted, len(SETTING_COLUMNS))
    block_table.shape = (sequences, pages)
    size = packed_size(rows, wanted, lines, sequences, pages)
    if packed.max_shape[0] < size:
        raise ShapeError(f"tables of {size} numbers in an array of {packed.max_shape[0]}")
    count = size - rows
    # All that a step may have sampled: how many the last one did makes no other plan.
    yield UNPACK_TABLES(
        *out, packed, previous, count=count, rows=rows, wanted=wanted, units=units.numel, settings=settings.numel,
        sampled=prod(previous.max_shape), threads=count,
    )  # fmt: skip
