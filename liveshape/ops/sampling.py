"""The next token, chosen on the device: the likeliest, or a draw after the filters of Hugging Face in their order.

These operators are no part of any file: a language model adds them to its graph, with settings that are live scalars.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import CacheRows
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.copies import copy_strided
from liveshape.ops.registry import op
from liveshape.ops.shapes import ceil_div

SAMPLE_SCORES = Kernel.load("sampling/scores")
SAMPLE_PENALTY = Kernel.load("sampling/penalty")
SAMPLE_MASS = Kernel.load("sampling/mass")
SAMPLE_LIMIT = Kernel.load("sampling/limit")
SAMPLE_ARGMAX = Kernel.load("sampling/argmax")
SAMPLE_PICK = Kernel.load("sampling/pick")

SPAN = 4096  # tokens of a workgroup
LANES = 256  # threads that reduce one result

Steps = Generator[Dispatch | Scratch, Any, None]


@op("liveshape.record", mutates=("history",), cache=CacheRows({"history": 1}, "position"))
def record(tokens: LiveTensor, position: int, history: LiveTensor, out: Any) -> Iterator[Dispatch]:
    """Write the tokens of a call into the history, at their position; the rest of it stays."""
    count, room = tokens.numel, history.shape[-1]
    if position < 0 or position + count > room:
        raise ShapeError(f"{count} tokens at position {position} do not fit a context of {room}")
    yield from copy_strided(tokens, history, (count,), (0, (1,)), (position, (1,)))


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
    seed: int,
    out: LiveTensor,
) -> Steps:
    """A token from each of the last rows of the logits; nothing at all unless `active`.

    A row's history ends with the token that the row follows: each has one more than the row before it.
    """
    width, most = logits.max_shape[-1], out.max_shape[-1]
    most_spans = ceil_div(width, SPAN)
    scores = yield Scratch("float32", (most, width))
    chosen = yield Scratch("int32", (most, width))
    masses = yield Scratch("float32", (most, most_spans, 2))
    best = yield Scratch("int32", (most, most_spans, 2))
    limit = yield Scratch("int32", (most,))
    given, count = prod(logits.shape[:-1]), logits.shape[-1]
    if not active or given == 0:
        return
    rows = min(rows, given, most)
    out.shape = (1, rows)
    greedy, start, spans = temperature == 0, (given - rows) * count, ceil_div(count, SPAN)
    penalized = repetition_penalty != 1 and length > 0
    limited = not greedy and (top_k > 0 or top_p < 1 or min_p > 0)
    row: dict[str, Any] = {"start": start, "temperature": 1 if greedy else temperature}
    if penalized or not greedy:
        yield SAMPLE_SCORES(scores, logits, **row, count=rows * count, threads=rows * count)
    if penalized:
        yield SAMPLE_PENALTY(
            scores, logits, history, **row, count=rows * length, length=length, rows=rows, vocabulary=count,
            penalty=repetition_penalty, threads=rows * length,
        )  # fmt: skip
    if limited:
        yield SAMPLE_MASS(
            masses, scores, count=count, rows=rows, spans=spans, SPAN=SPAN, UNIT_THREADS=LANES, groups=rows * spans
        )
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


@op("liveshape.last_rows")
def last_rows(x: LiveTensor, rows: int, out: LiveTensor) -> Iterator[Dispatch]:
    """The last rows of (1, S, H) as (rows, H) or (1, rows, H); all of them where there are fewer."""
    given, width = x.shape[-2:]
    rows = min(rows, given)
    out.shape = (1, rows, width) if out.rank == 3 else (rows, width)
    yield from copy_strided(x, out, (rows * width,), ((given - rows) * width, (1,)), (0, (1,)))
