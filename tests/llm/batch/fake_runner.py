"""A runner of many sequences without a device, with the next token as a function of those before it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from liveshape.errors import DeviceError
from liveshape.llm.batch.scheduler import Piece, Step
from liveshape.llm.program.batched_graph import BatchBounds
from liveshape.llm.program.token_graph import Description
from liveshape.llm.sampling_settings import Sampling
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.text.tokenizer import Tokenizer
from tests.llm.texts import Next, plain

PAGE_SIZE, VOCABULARY = 4, 400


class PendingTokens:
    """The tokens of a step, behind a gate."""

    def __init__(self, runner: FakeRunner, tokens: list[int]) -> None:
        self._runner, self._tokens = runner, tokens

    def result(self) -> list[Any]:
        self._runner.reading.set()
        assert self._runner.gate.wait(1800)
        self._runner.check("result")
        logits = np.zeros((len(self._tokens), VOCABULARY), np.float32)
        logits[np.arange(len(self._tokens)), self._tokens] = 10
        return [np.array(self._tokens, np.int32), logits]


class FakeRunner:
    """The calls of BatchRunner; `fails` are errors of its next calls."""

    def __init__(
        self, following: Next, *, sequences: int = 4, pages: int = 16, rows: int = 8, context: int = 64
    ) -> None:
        self.following = following
        self.bounds = BatchBounds(rows, sequences, pages, PAGE_SIZE, context)
        self.window = None
        self.origin = SimpleNamespace(activations="float32")
        self.device = SimpleNamespace(name="a list", lost=False, steps_ahead=1, latency=0.0)
        self.memory = SimpleNamespace(total=2_000_000_000, state=0)
        self.gate, self.reading = threading.Event(), threading.Event()
        self.gate.set()
        self.fails: dict[str, list[Exception]] = {}
        self.closed = 0
        self._last: dict[Any, int] = {}  # what the step before sampled, which the host may not have read

    def check(self, where: str) -> None:
        if self.device.lost:
            raise DeviceError("the device was lost")
        if self.fails.get(where):
            raise self.fails[where].pop()

    def submit(self, step: Step, samplings: Sequence[Sampling], logits: bool = False) -> PendingTokens:
        self.check("submit")
        assert len(samplings) == step.lines
        assert step.rows <= self.bounds.rows
        for piece in step.pieces:
            assert len(piece.table.pages) * PAGE_SIZE >= piece.start + piece.count
        lines = [piece for piece in step.pieces if piece.line is not None]
        self._last = {piece.sequence: self.following(self._cache(piece)) for piece in lines}
        return PendingTokens(self, list(self._last.values()))

    def _cache(self, piece: Piece) -> list[int]:
        """The tokens up to the last row of a piece."""
        known = piece.sequence.tokens[: piece.start + piece.count]
        return known if piece.source is None else [*known, self._last[piece.sequence]]

    def close(self) -> None:
        self.closed += 1


def fake_engine(runner: FakeRunner, tokenizer: Tokenizer | None = None, **options: Any) -> BatchEngine:
    """An engine on such a runner."""
    context = runner.bounds.context
    description = Description(context, context, None, VOCABULARY, (), None, 1, 1)
    given: Any = runner
    return BatchEngine(given, plain() if tokenizer is None else tokenizer, description, **options)
