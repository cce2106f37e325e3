"""The tables of a step: which token, position and slot each row has, and which rows attend to which pages. No GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from liveshape.llm.batch.scheduler import Step
from liveshape.llm.sampling_settings import Sampling
from liveshape.ops.batch_inputs import packed_size
from liveshape.ops.paged_attention import COPY
from liveshape.ops.sampling import SETTING_COLUMNS

Table = npt.NDArray[np.int32]
Line = tuple[int, int, int, int]  # first row, queries, position, sequence
_LEAST_CONTEXT = 64  # contexts are rounded up to powers of two from here on, so that plans seldom change


_POSITION, _LENGTH, _SEQUENCE = (SETTING_COLUMNS.index(name) for name in ("position", "length", "sequence"))


@dataclass(frozen=True)
class LineSizes:
    """The most queries of a line of attention: of few rows (decode), and of a tile."""

    few: int
    tile: int


@dataclass(frozen=True, eq=False)
class StepTables:
    """The packed tables of one step, its copies, the sizes of each, and what attention is told: see `BatchTables`."""

    packed: Table
    copies: Table
    sizes: tuple[int, int, int, int, int]  # rows, wanted rows, lines, sequences, pages
    attention: tuple[int, int, int, int]  # lines of few rows and of tiles, and the longest context of each


def tables_of(step: Step, samplings: Sequence[Sampling], lines: LineSizes, longest: int) -> StepTables:
    """The tables of a step, whose lines are sampled by these settings; `longest` bounds the pages of a sequence.

    Each piece is a line of the block table.
    """
    few, tiles, contexts = _attention(step, lines)
    tokens: list[int] = []
    sources: list[int] = []
    places: list[int] = []  # position and slot of each row
    wanted: list[int] = []
    lengths: list[int] = []  # tokens before each that is sampled
    sequences: list[int] = []  # and the line of the block table of each
    most = 0
    for place, piece in enumerate(step.pieces):
        table, start, count = piece.table, piece.start, piece.count
        if piece.source is None:
            tokens += piece.sequence.tokens[start : start + count - len(piece.draft)]
            tokens += piece.draft
            sources += [-1] * count
        else:
            tokens.append(0)
            sources.append(piece.source)
        if count == 1:
            places += (start, table.slot(start))
        else:
            positions = np.arange(start, start + count)
            places += np.stack([positions, table.slots(start, start + count)], 1).reshape(-1).tolist()
        for number in range(len(piece.lines)):
            wanted.append(len(tokens) - len(piece.lines) + number)
            lengths.append(start + count - len(piece.draft) + number)
            sequences.append(place)
        most = max(most, len(table.pages))
    pages = min(_rounded(most, 1), longest)
    sizes = (len(tokens), max(len(wanted), 1), len(few) + len(tiles), len(step.pieces), pages)
    packed = np.zeros(packed_size(*sizes), np.int32)
    known = [*tokens, *sources, *places, *(wanted or [0]), *chain.from_iterable(few), *chain.from_iterable(tiles)]
    packed[: len(known)] = known
    settings = packed[len(known) : len(known) + len(SETTING_COLUMNS) * sizes[1]]
    if wanted:
        settings[:] = settings_table(samplings, lengths, sequences).reshape(-1)
    block_table = packed[len(known) + len(settings) :].reshape(len(step.pieces), pages)
    for place, piece in enumerate(step.pieces):
        block_table[place, : len(piece.table.pages)] = piece.table.pages
    copies = np.array(step.copies, np.int32).reshape(-1, COPY)
    return StepTables(packed, copies, sizes, (len(few), len(tiles), *contexts))


def _attention(step: Step, lines: LineSizes) -> tuple[list[Line], list[Line], tuple[int, int]]:
    """Lines of few rows, lines of tiles, and a rounded bound on the context of each kind."""
    few: list[Line] = []
    tiles: list[Line] = []
    longest, first = [0, 0], 0
    for place, piece in enumerate(step.pieces):
        start, count = piece.start, piece.count
        is_tile = count > lines.few
        kind, size = (tiles, lines.tile) if is_tile else (few, lines.few)
        for offset in range(0, count, size):
            kind.append((first + offset, min(size, count - offset), start + offset, place))
        longest[is_tile] = max(longest[is_tile], start + count)
        first += count
    return few, tiles, (_rounded(longest[0], _LEAST_CONTEXT), _rounded(longest[1], _LEAST_CONTEXT))


def settings_table(samplings: Sequence[Sampling], lengths: Sequence[int], sequences: Sequence[int]) -> Table:
    """The sampling settings of the lines of a step, with the tokens before each and its line of the block table."""
    table = np.array([_settings(sampling) for sampling in samplings], np.int32)
    table[:, _POSITION] = table[:, _LENGTH] = lengths
    table[:, _SEQUENCE] = sequences
    return table


@lru_cache(maxsize=1024)
def _settings(sampling: Sampling) -> tuple[int, ...]:
    """A line of settings, floats by their bits; what changes from step to step is left open."""
    given = [getattr(sampling, name, 0) for name in SETTING_COLUMNS]
    bits = [np.float32(value) if isinstance(value, float) else np.uint32(value) for value in given]
    return tuple(int(value.view(np.int32)) for value in bits)


def _rounded(number: int, least: int) -> int:
    """The next power of two.

    >>> _rounded(65, 64), _rounded(3, 64)
    (128, 64)
    """
    return max(least, 1 << max(number - 1, 0).bit_length())
