"""Random arrivals, lengths, cancels, forks, truncates and small pools against each sequence alone: the same tokens, the
same logits."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from liveshape.llm.batch.kept_sequence import KeptSequence
from liveshape.llm.batch.loading import PAGE_SIZE, load_runner
from liveshape.llm.batch.pages import PagePool
from liveshape.llm.batch.runner import BatchRunner
from liveshape.llm.batch.scheduler import Scheduler, Sequence, Step
from liveshape.llm.engine.speculative import Lookahead, Ngrams
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.sampling_settings import Sampling
from tests.support.llamas import Tiny, program

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Kind:
    """A tiny model and how it is loaded."""

    tiny: Tiny
    half_cache: bool = False
    activations: str = "float32"
    tolerance: float = TOLERANCE

    @property
    def name(self) -> str:
        half = " half cache" if self.half_cache else ""
        return f"{self.tiny.name} {self.activations}{half}"


LAST = Tiny("last")
KINDS = (
    Kind(LAST),
    Kind(Tiny("qwen", qwen=True)),
    Kind(Tiny("rows", full_logits=True)),
    # One row and several are summed in another order, so a key may be rounded to the half beside it, 2^-10 away.
    Kind(LAST, half_cache=True, tolerance=2**-10),
    # One row and several are quantized by other kernels, whose last bits turn bytes over.
    Kind(LAST, activations="int8", tolerance=0.25),
)


class Crowd:
    """Sequences that come and go on one runner, some steps ahead of what is read; some of them draft tokens."""

    def __init__(self, runner: BatchRunner, seed: int) -> None:
        bounds = runner.bounds
        self.draw = random.Random(seed)
        self.runner, self.context = runner, bounds.context
        self.pool = PagePool(bounds.pages, bounds.page_size)
        self.scheduler = Scheduler(self.pool, bounds.rows, bounds.sequences, self.draw.choice([None, 3]))
        self.forks = 0  # that began with a copy of a page
        self.logits: dict[Sequence, list[Any]] = {}
        self.flights: deque[tuple[Step, Any]] = deque()
        self.ahead = self.draw.randint(1, runner.device.steps_ahead)
        self.accepted = 0

    def add(self, tokens: list[int], kept: KeptSequence | None = None) -> None:
        lookahead = Lookahead(Ngrams(), 3) if self.draw.random() < 0.4 else None
        on_host = self.draw.random() < 0.2  # the likeliest token is what the host would choose, too
        limit = min(len(tokens) + self.draw.randint(1, 12), self.context)
        sequence = Sequence(tokens, limit, lookahead=lookahead, on_host=on_host, continues=kept)
        self.logits[sequence] = []
        self.scheduler.add(sequence)

    @property
    def kept(self) -> list[KeptSequence]:
        """Those that no sequence goes on from now."""
        busy = {each.continues for each in (*self.scheduler.running, *self.scheduler.waiting)}
        return [each for each in self.scheduler.kept if each not in busy]

    def go_on(self, kept: KeptSequence) -> None:
        """A sequence that goes on from one that was kept, from a fork of it, or from a part of either."""
        few = [self.draw.randint(4, 90) for _ in range(3)]
        if self.draw.random() < 0.6:
            kept = kept.fork()
            self.scheduler.kept.append(kept)
        if self.draw.random() < 0.5 or len(kept.tokens) > 30:
            kept.truncate(self.draw.randint(0, min(len(kept.tokens), 30)))
        self.add([*kept.tokens, *few[: self.draw.randint(1, 3)]], kept)

    def step(self) -> None:
        step = self.scheduler.schedule()
        if step is not None:
            self.forks += len(step.copies)
            self.flights.append((step, self.runner.submit(step, [Sampling()] * step.lines, logits=True)))
        while len(self.flights) > (0 if step is None else self.ahead):
            self.read(*self.flights.popleft())

    def read(self, step: Step, pending: Any) -> None:
        token, logits = pending.result()
        for sequence, lines in self.scheduler.read(step, token.reshape(-1).tolist()):
            self.logits[sequence] += [logits[line] for line in lines]
            self.accepted += len(lines) - 1
            if len(sequence.tokens) == sequence.limit:
                self.scheduler.keep(sequence)
                self.scheduler.finish(sequence)

    def run(self, count: int, prompts: list[list[int]]) -> None:
        """So many sequences, to their end or cancelled."""
        left = count
        while left or self.scheduler.running or self.scheduler.waiting or self.flights:
            while left and self.draw.random() < 0.4:
                left -= 1
                chosen = self.draw.random()
                if chosen < 0.4 and (kept := self.kept):
                    self.go_on(self.draw.choice(kept))
                    continue
                prompt = self.draw.choice(prompts)
                if chosen < 0.8:
                    prompt = [*prompt[: self.draw.randint(1, len(prompt))], self.draw.randint(4, 90)]
                self.scheduler.kept.append(KeptSequence())
                self.add(prompt, self.scheduler.kept[-1] if self.draw.random() < 0.5 else None)
            if left and self.draw.random() < 0.02 and self.scheduler.running:
                self.scheduler.finish(self.draw.choice(self.scheduler.running))
            self.step()


def check(kind: Kind, runner: BatchRunner, count: int, seed: int) -> None:
    draw = random.Random(seed)
    prompts = [[draw.randint(4, 90) for _ in range(draw.randint(2, 26))] for _ in range(4)]
    crowd = Crowd(runner, seed)
    crowd.run(count, prompts)
    assert crowd.forks > 0
    while crowd.scheduler.reclaim():
        pass
    compare(kind, crowd)


def compare(kind: Kind, crowd: Crowd) -> None:
    """Each sequence with what it has alone."""
    assert crowd.pool.in_use == 0
    options: dict[str, Any] = {"half_cache": kind.half_cache, "activations": kind.activations}
    with LanguageModel.load(program(kind.tiny), **options) as model:
        for sequence, found in crowd.logits.items():
            if not found:
                continue
            start = len(sequence.tokens) - len(found)
            model.reset()
            rows = model.evaluate(sequence.tokens[:-1])[start - 1 :]
            np.testing.assert_allclose(np.stack(found), rows, atol=kind.tolerance, rtol=kind.tolerance)
            assert sequence.tokens[start:] == [int(row.argmax()) for row in found]


def runner_of(kind: Kind, pages: int) -> BatchRunner:
    options: dict[str, Any] = {"half_cache": kind.half_cache, "activations": kind.activations}
    with LanguageModel.load(program(kind.tiny), **options) as model:
        layout = model.engine.cache.layout(PAGE_SIZE)
    page = sum(math.prod(shape) * np.dtype(dtype).itemsize for dtype, shape in layout if len(shape) == 4)
    runner, _ = load_runner(program(kind.tiny), sequences=5, cache_bytes=pages * page, **options)
    assert runner.bounds.pages == pages
    return runner


@pytest.mark.parametrize(
    "kind",
    [KINDS[0], KINDS[2], *(pytest.param(kind, marks=pytest.mark.slow) for kind in (KINDS[1], *KINDS[3:]))],
    ids=lambda kind: kind.name,
)
def test_forty_sequences(kind: Kind) -> None:
    runner = runner_of(kind, 7)
    check(kind, runner, 40, 1)
    runner.close()


class Told:
    """Drafts a text that it was told, with a wrong token now and then."""

    def __init__(self, text: Tokens[int]) -> None:
        self._text, self._draw = list(text), random.Random(1)

    def may_draft(self, tokens: Tokens[int]) -> bool:
        return self._draw.random() < 0.7

    def draft(self, tokens: Tokens[int], token: int, most: int) -> list[int]:
        found = self._text[len(tokens) + 1 :][:most]
        return [each if self._draw.random() < 0.7 else 3 for each in found]


def test_draft_tokens_change_nothing() -> None:
    runner = runner_of(KINDS[0], 9)

    def crowd_of(lookahead: Callable[[int], Lookahead | None]) -> Crowd:
        crowd = Crowd(runner, 3)
        for place, prompt in enumerate(([5, 6, 7] * 4, [9, 8])):
            sequence = Sequence(prompt, crowd.context, lookahead=lookahead(place))
            crowd.logits[sequence] = []
            crowd.scheduler.add(sequence)
        crowd.run(0, [])
        return crowd

    texts = [sequence.tokens for sequence in crowd_of(lambda place: None).logits]
    crowd = crowd_of(lambda place: Lookahead(Told(texts[place]), 3))
    assert [sequence.tokens for sequence in crowd.logits] == texts
    assert crowd.accepted > 0
    assert any(0 < each.lookahead.accepted < each.lookahead.proposed for each in crowd.logits if each.lookahead)
    compare(KINDS[0], crowd)
    runner.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_five_hundred_sequences(kind: Kind) -> None:
    for pages in (4, 9, 30):
        runner = runner_of(kind, pages)
        for seed in range(4):
            check(kind, runner, 42, seed)
        runner.close()
