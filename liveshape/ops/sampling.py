"""The next token, chosen on the device: the likeliest, or a draw after the filters of Hugging Face in their order.

These operators are no part of any file: a language model adds them to its graph, with settings that are live scalars.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Limits
from liveshape.graph.elements import is_packed, prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import CacheRows
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.copies import copy_strided
from liveshape.ops.lookup import gather_packed_rows, gather_rows
from liveshape.ops.registry import op
from liveshape.ops.row_tables import Start, check_row_table, rows_of_cache, rows_to_slots
from liveshape.ops.shapes import Strided, ceil_div

SAMPLE_SCORES = Kernel.load("sampling/scores")
SAMPLE_PENALTY = Kernel.load("sampling/penalty")
SAMPLE_MASS = Kernel.load("sampling/mass")
SAMPLE_LIMIT = Kernel.load("sampling/limit")
SAMPLE_ARGMAX = Kernel.load("sampling/argmax")
SAMPLE_PICK = Kernel.load("sampling/pick")
ROW_SCORES = Kernel.load("sampling/scores", SETTINGS="by_row")
ROW_PENALTY = Kernel.load("sampling/penalty", SETTINGS="by_row")
ROW_LIMIT = Kernel.load("sampling/limit", SETTINGS="by_row")
ROW_ARGMAX = Kernel.load("sampling/argmax", SETTINGS="by_row")

SPAN = 4096  # tokens of a workgroup
LANES = 256  # threads that reduce one result
PENALTY_THREADS = 64  # of a row that share its history
# The columns of a table of settings, int32 with the bits of floats: see sampling/settings.wgsl.
SETTING_COLUMNS = (
    "temperature",  # 0: greedy
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "prompt_tokens",  # of the history, which these two do not count
    "seed",
    "position",  # that numbers the draw, the length of the history for `sample`
    "sequence",  # the line of the block table that has the pages of the history
    "length",  # of the history
)

Steps = Generator[Dispatch | Scratch | GetLimits, Any, None]


@op(
    "liveshape.record",
    mutates=("history",),
    rows=rows_of_cache("tokens", start="position"),
    cache=CacheRows({"history": 1}, "position"),
)
def record(tokens: LiveTensor, position: Start, history: LiveTensor, out: Any) -> Iterator[Dispatch]:
    """Write the tokens [1, S] of a call into the history, from their position on or at their slots; the rest stays."""
    count, room = tokens.numel, history.shape[-1]
    if isinstance(position, LiveTensor):
        check_row_table(position, count)
        yield rows_to_slots(tokens, history, position)
        return
    if position < 0 or position + count > room:
        raise ShapeError(f"{count} tokens at position {position} do not fit a context of {room}")
    yield from copy_strided(tokens, history, Strided.contiguous((count,)), Strided.contiguous((count,), position))


@op("liveshape.sample", cache=CacheRows({"history": 1}))
def sample(
    logits: LiveTensor,
    history: LiveTensor,
    length: int,  # of the history of the last row, which numbers its draw as well
    rows: int,  # the last of the logits that a token each is chosen from
    active: bool,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repetition_penalty: float,
    frequency_penalty: float,
    presence_penalty: float,
    prompt_tokens: int,  # of the history, which these two do not count
    seed: int,
    out: LiveTensor,
) -> Steps:
    """A token from each of the last rows of the logits; nothing at all unless `active`.

    A row's history ends with the token that the row follows: each has one more than the row before it.
    """
    most = out.max_shape[-1]
    scores, chosen, masses, best, limit = yield from _scratch(most, logits.max_shape[-1])
    given, count = prod(logits.shape[:-1]), logits.shape[-1]
    if not active or given == 0:
        return
    rows = min(rows, given, most)
    out.shape = (1, rows)
    greedy, start, spans = temperature == 0, (given - rows) * count, ceil_div(count, SPAN)
    counted = frequency_penalty != 0 or presence_penalty != 0
    penalized = (repetition_penalty != 1 or counted) and length > 0
    limited = not greedy and (top_k > 0 or top_p < 1 or min_p > 0)
    row: dict[str, Any] = {"start": start, "temperature": 1 if greedy else temperature}
    if penalized or not greedy:
        yield SAMPLE_SCORES(scores, logits, **row, count=rows * count, threads=rows * count)
    if penalized:
        row_threads = PENALTY_THREADS if counted else length
        yield SAMPLE_PENALTY(
            scores, chosen, logits, history, **row, count=rows * row_threads, row_threads=row_threads, length=length,
            rows=rows, vocabulary=count, penalty=repetition_penalty, frequency=frequency_penalty,
            presence=presence_penalty, prompt=prompt_tokens, threads=rows * row_threads,
        )  # fmt: skip
    if limited:
        yield _masses(masses, scores, {"count": count, "rows": rows, "spans": spans})
        yield SAMPLE_LIMIT(
            limit, chosen, scores, masses, count=count, rows=rows, spans=spans, top_k=top_k if top_k < count else 0,
            top_p=top_p, min_p=min_p, groups=rows,
        )  # fmt: skip
    values, begin = (scores, 0) if penalized or not greedy else (logits, start)
    yield SAMPLE_ARGMAX(
        best, values, limit, count=count, rows=rows, start=begin, spans=spans, seed=seed, position=length - rows + 1,
        SPAN=SPAN, UNIT_THREADS=LANES, SAMPLE=not greedy, TRUNCATED=limited, groups=rows * spans,
    )  # fmt: skip
    yield SAMPLE_PICK(out, best, rows=rows, spans=spans, UNIT_THREADS=LANES, groups=rows)


def _scratch(rows: int, width: int) -> Generator[Scratch, Any, tuple[LiveTensor, ...]]:
    """Scores, counts of tokens and later the tokens of a bin, masses and best tokens of spans, limits of rows."""
    spans = ceil_div(width, SPAN)
    scores = yield Scratch("float32", (rows, width))
    chosen = yield Scratch("int32", (rows, width))
    masses = yield Scratch("float32", (rows, spans, 2))
    best = yield Scratch("int32", (rows, spans, 2))
    limit = yield Scratch("int32", (rows,))
    return scores, chosen, masses, best, limit


@op("liveshape.sample_rows")
def sample_rows(
    logits: LiveTensor,
    history: LiveTensor,  # [1, slots]
    block_table: LiveTensor,  # [sequences, pages]
    page_size: int,
    settings: LiveTensor,  # a line per row, see SETTING_COLUMNS
    drawn: bool,  # whether any row has a temperature
    limited: bool,  # whether any of these has top-k, top-p or min-p
    penalized: bool,  # whether any row has a penalty and a history
    rows: int,
    out: LiveTensor,
) -> Steps:
    """A token from each of the first rows of the logits, by settings and a history of its own: what `sample` gives."""
    most = out.max_shape[-1]
    scores, chosen, masses, best, limit = yield from _scratch(most, logits.max_shape[-1])
    given, count = prod(logits.shape[:-1]), logits.shape[-1]
    rows = min(rows, given, most)
    limits: Limits = yield GetLimits()
    drawn, limited, penalized = bool(drawn), bool(drawn and limited), bool(penalized)
    if limits.one_order and (drawn or penalized):
        drawn = limited = penalized = True  # what others want decides on no kernel but that of the likeliest token
    if settings.shape[0] < rows or settings.shape[1:] != (len(SETTING_COLUMNS),):
        raise ShapeError(
            f"settings {settings.shape}: a line of {len(SETTING_COLUMNS)} for each of {rows} rows is needed"
        )
    out.shape = (1, rows)
    if rows == 0:
        return
    spans = ceil_div(count, SPAN)
    if drawn or penalized:
        yield ROW_SCORES(scores, logits, settings, count=rows * count, vocabulary=count, threads=rows * count)
    if penalized:
        yield ROW_PENALTY(
            scores, chosen, logits, history, settings, block_table, count=rows * PENALTY_THREADS,
            row_threads=PENALTY_THREADS, page_size=page_size, pages=block_table.shape[1],
            sequences=block_table.shape[0], slots=history.shape[-1], vocabulary=count, threads=rows * PENALTY_THREADS,
        )  # fmt: skip
    shape: dict[str, Any] = {"count": count, "rows": rows, "spans": spans}
    if limited:
        yield _masses(masses, scores, shape)
        yield ROW_LIMIT(limit, chosen, scores, masses, settings, **shape, groups=rows)
    if drawn or penalized:
        kernel: dict[str, Any] = {"SAMPLE": drawn, "TRUNCATED": limited, "PENALIZED": penalized}
        yield ROW_ARGMAX(
            best, logits, limit, scores, settings, **shape, **kernel, start=0, SPAN=SPAN, UNIT_THREADS=LANES,
            groups=rows * spans,
        )  # fmt: skip
    else:
        yield SAMPLE_ARGMAX(
            best, logits, limit, **shape, start=0, seed=0, position=0, SPAN=SPAN, UNIT_THREADS=LANES,
            SAMPLE=False, TRUNCATED=False, groups=rows * spans,
        )  # fmt: skip
    yield SAMPLE_PICK(out, best, rows=rows, spans=spans, UNIT_THREADS=LANES, groups=rows)


def _masses(masses: LiveTensor, scores: LiveTensor, shape: dict[str, Any]) -> Dispatch:
    return SAMPLE_MASS(masses, scores, **shape, SPAN=SPAN, UNIT_THREADS=LANES, groups=shape["rows"] * shape["spans"])


@op("liveshape.last_rows")
def last_rows(x: LiveTensor, rows: int | LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    """The last rows of (1, S, H), at most all of them, or those of a table, as (rows, H) or (1, rows, H)."""
    given, width = x.shape[-2:]
    count = rows.numel if isinstance(rows, LiveTensor) else min(rows, given)
    out.shape = (1, count, width) if out.rank == 3 else (count, width)
    if isinstance(rows, LiveTensor) and is_packed(x.dtype) and width % 4 == 0:
        yield gather_packed_rows(out, x, rows, given, width)
        return
    if isinstance(rows, LiveTensor):
        yield gather_rows(out, x, rows, 1, given, width)
        return
    yield from copy_strided(x, out, Strided.contiguous((count * width,), (given - count) * width))
