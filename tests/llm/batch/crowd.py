"""Sequences that come and go on one runner, at random, and what each of them has alone."""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from liveshape.device.protocol import Device
from liveshape.graph.elements import storage_bytes
from liveshape.llm.batch.kept_sequence import KeptSequence
from liveshape.llm.batch.loading import PAGE_SIZE, load_runner
from liveshape.llm.batch.pages import PagePool
from liveshape.llm.batch.runner import BatchRunner
from liveshape.llm.batch.scheduler import Scheduler, Sequence, Step
from liveshape.llm.engine.speculative import Lookahead, Ngrams
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.sampling_settings import Sampling


@dataclass(frozen=True)
class Subject:
    """A file, how it is loaded, and how far logits may be from those that a sequence has alone."""

    file: Path
    half_cache: bool = False
    activations: str = "float32"
    tolerance: float = 1e-4
    device: Device | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of whoever loads the file."""
        return {"half_cache": self.half_cache, "activations": self.activations, "device": self.device}


class Crowd:
    """Sequences that come and go on one runner, some steps ahead of what is read; some of them draft tokens."""

    def __init__(self, runner: BatchRunner, seed: int) -> None:
        bounds = runner.bounds
        self.draw = random.Random(seed)
        self.runner, self.context = runner, bounds.context
        self.pool = PagePool(bounds.pages, bounds.page_size)
        pieces = self.draw.choice([None, 3])
        self.scheduler = Scheduler(self.pool, bounds.rows, bounds.sequences, pieces, runner.window)
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


def check(subject: Subject, runner: BatchRunner, count: int, seed: int) -> int:
    """So many random sequences have what each has alone, and every page is free at the end; how many of them began with
    a copy of a page."""
    draw = random.Random(seed)
    prompts = [[draw.randint(4, 90) for _ in range(draw.randint(2, 26))] for _ in range(4)]
    crowd = Crowd(runner, seed)
    crowd.run(count, prompts)
    while crowd.scheduler.reclaim():
        pass
    compare(subject, crowd)
    return crowd.forks


def compare(subject: Subject, crowd: Crowd) -> None:
    """Each sequence with what it has alone.

    One row and several are summed in another order, so that a key may be rounded to the half beside it. With a half
    cache logits may so differ by twice what rounding to halves makes of them alone.
    """
    assert crowd.pool.in_use == 0
    answered = [(sequence, found) for sequence, found in crowd.logits.items() if found]
    alone = logits_alone(subject, answered)
    tolerance = subject.tolerance
    if subject.half_cache:
        floats = logits_alone(replace(subject, half_cache=False), answered)
        rounding = max(float(np.abs(half - exact).max()) for half, exact in zip(alone, floats, strict=True))
        tolerance = max(tolerance, 2 * rounding)  # where a device has no f16, nothing is rounded
    for (sequence, found), rows in zip(answered, alone, strict=True):
        np.testing.assert_allclose(np.stack(found), rows, atol=tolerance, rtol=tolerance)
        assert sequence.tokens[-len(found) :] == [int(row.argmax()) for row in found]


def logits_alone(subject: Subject, answered: list[tuple[Sequence, list[Any]]]) -> list[Any]:
    """The logits of each answer of a sequence that runs alone."""
    rows = []
    with LanguageModel.load(subject.file, **subject.options) as model:
        for sequence, found in answered:
            model.reset()
            rows.append(model.evaluate(sequence.tokens[:-1])[-len(found) :])
    return rows


def page_bytes(subject: Subject) -> int:
    """What one page of the cache takes."""
    with LanguageModel.load(subject.file, **subject.options) as model:
        layout, half = model.engine.cache.layout(PAGE_SIZE), model.device.limits.half
    return sum(storage_bytes(dtype, math.prod(shape), half) for dtype, shape in layout if len(shape) == 4)


def runner_of(subject: Subject, pages: int) -> BatchRunner:
    """A runner of five sequences on a pool of so many pages."""
    cache_bytes = pages * page_bytes(subject)
    runner, _ = load_runner(subject.file, sequences=5, cache_bytes=cache_bytes, **subject.options)
    assert runner.bounds.pages == pages
    return runner
