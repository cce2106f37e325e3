"""Ctrl-C at any line of what callers do with an engine: nothing runs on for nobody, and it can be closed again."""

from __future__ import annotations

import asyncio
import random
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from liveshape.llm.program.batched_graph import BatchBounds
from liveshape.llm.program.token_graph import Description
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.program.memory_use import Memory
from liveshape.shipped import shipped_model
from tests.survival.lines import Lines


class Waiting:
    """A runner whose steps are never done: what it was asked for is there until somebody takes it back."""

    def __init__(self) -> None:
        self.bounds = BatchBounds(rows=8, sequences=4, pages=64, page_size=16, context=512)
        self.window = None
        self.memory = Memory(0, 0, 0, 0, 0, 0, 0)
        self.device = SimpleNamespace(lost=False, name="paper", steps_ahead=1, latency=0.0)
        self.closed = False

    def close(self) -> None:
        self.closed = True


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.load(shipped_model())


def engine_of(runner: Any) -> BatchEngine:
    description = Description(8, 512, 512, tokenizer().vocab_size, (), None, 1, 1)
    engine = BatchEngine(runner, tokenizer(), description)
    engine._step = lambda: None  # type: ignore[method-assign]
    return engine


def kept(engine: BatchEngine) -> int:
    """Requests that nobody has taken back."""
    with engine._changed:
        return len(engine._requests) - len(engine._left)


@pytest.mark.parametrize("most", [60, pytest.param(100_000, marks=pytest.mark.slow)])
def test_generate(most: int) -> None:
    engine = engine_of(Waiting())
    whole = Lines()
    made: list[Any] = []

    def ask() -> None:
        made.append(engine.generate("Once upon a time", max_tokens=200))

    whole.over(ask)
    assert kept(engine) == 1
    asyncio.run(made.pop().aclose())
    lines = list(range(1, whole.count + 1))
    # The last lines are those in which the request is queued.
    chosen = {*random.Random(5).sample(lines, min(most // 2, len(lines))), *lines[-most // 2 :]}
    cuts = 0
    for line in sorted(chosen):
        cut = Lines(line)
        if cut.over(ask):
            cuts += 1
            assert kept(engine) == 0, f"after an interrupt at {cut.where}"
        else:
            asyncio.run(made.pop().aclose())
    assert cuts > len(chosen) // 2
    asyncio.run(engine.close())


def test_close() -> None:
    whole = Lines()
    engine = engine_of(Waiting())
    whole.over(lambda: asyncio.run(engine.close()))
    assert not engine._thread.is_alive()
    for line in range(1, whole.count + 1):
        runner = Waiting()
        engine = engine_of(runner)
        answer = engine.generate("Once upon a time")
        Lines(line).over(lambda engine=engine: asyncio.run(engine.close()))
        asyncio.run(engine.close())
        assert not engine._thread.is_alive()
        assert runner.closed
        assert answer.ended
