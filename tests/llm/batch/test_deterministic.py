"""Deterministic: the bytes of a sequence's logits, and so its tokens, are those that it has alone in one piece."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from liveshape.device.backends import open_device
from liveshape.llm import open_engine
from liveshape.llm.batch.loading import load_runner
from liveshape.llm.batch.pages import PagePool
from liveshape.llm.batch.runner import BatchRunner
from liveshape.llm.batch.scheduler import Scheduler, Sequence, Step
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.sampling_settings import Sampling
from liveshape.shipped import shipped_model
from tests.support.llamas import Tiny, program
from tests.support.paper import PaperDevice

TINY = Tiny("last")
WHOLE = 30  # pages: more than all sequences have together
# Greedy, drawn, filtered and penalized, beside each other.
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.9, seed=3),
    Sampling(temperature=1.2, top_k=20, top_p=0.8, seed=4),
    Sampling(repetition_penalty=1.4),
    Sampling(temperature=0.7, min_p=0.05, repetition_penalty=1.1, seed=5),
)


@dataclass(frozen=True)
class Request:
    """A prompt, how many tokens follow it, and how they are sampled."""

    prompt: tuple[int, ...]
    tokens: int
    sampling: Sampling


Answer = tuple[list[int], list[bytes]]  # tokens, and the bytes of the logits of each


@dataclass
class Counts:
    """What happened on the way."""

    preemptions: int = 0
    cached: int = 0


def requests(seed: int, count: int) -> list[Request]:
    """Some of them begin alike, with more than a page."""
    draw = random.Random(seed)
    common = tuple(draw.randint(4, 90) for _ in range(18))
    found = []
    for place in range(count):
        own = tuple(draw.randint(4, 90) for _ in range(draw.randint(1, 12)))
        prompt = common + own if place % 3 == 0 else own
        found.append(Request(prompt, min(draw.randint(4, 14), 40 - len(prompt)), SAMPLINGS[place % len(SAMPLINGS)]))
    return found


def answers(
    runner: BatchRunner,
    given: list[Request],
    *,
    pages: int = WHOLE,
    prompt_rows: int | None = None,
    seed: int = 0,
    counts: Counts | None = None,
) -> list[Answer]:
    """Requests that arrive at random, one step ahead of what is read."""
    draw = random.Random(seed)
    pool = PagePool(pages, runner.bounds.page_size)
    scheduler = Scheduler(pool, runner.bounds.rows, runner.bounds.sequences, prompt_rows)
    sequences = [Sequence(list(each.prompt), len(each.prompt) + each.tokens, request=each) for each in given]
    logits: dict[Sequence, list[bytes]] = {sequence: [] for sequence in sequences}
    left, flight = list(sequences), None

    def read(step: Step, pending: Any) -> None:
        token, found = pending.result()
        for sequence, lines in scheduler.read(step, token.reshape(-1).tolist()):
            logits[sequence] += [found[line].tobytes() for line in lines]
            if len(sequence.tokens) == sequence.limit:
                scheduler.finish(sequence)

    while left or scheduler.running or scheduler.waiting or flight is not None:
        while left and draw.random() < 0.5:
            scheduler.add(left.pop(0))
        step = scheduler.schedule()
        samplings = [] if step is None else [p.sequence.request.sampling for p in step.pieces if p.line is not None]
        pending = None if step is None else runner.submit(step, samplings, logits=True)
        if flight is not None:
            read(*flight)
        flight = None if step is None else (step, pending)
    if counts is not None:
        counts.preemptions, counts.cached = scheduler.preemptions, sum(sequence.cached for sequence in sequences)
    return [(sequence.tokens, logits[sequence]) for sequence in sequences]


@cache
def runner_of(activations: str = "float32", half_cache: bool = False, threads: int | None = None) -> BatchRunner:
    """On a device with as many cooperating threads as this one has, or as a GPU has."""
    limits = open_device().limits
    if threads is not None:
        limits = replace(limits, max_invocations=256, max_cooperating_threads=threads)
    runner, _ = load_runner(
        program(TINY), device=open_device(limits=limits), sequences=5, cache_bytes=WHOLE * PAGE_BYTES,
        activations=activations, half_cache=half_cache, deterministic=True,
    )  # fmt: skip
    return runner


PAGE_BYTES = 16 * 2 * 2 * 2 * 8 * 4  # rows, layers, keys and values, heads, head size, bytes


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    runner_of.cache_clear()


KINDS = [("float32", False, None), pytest.param(("int8", False, None), marks=pytest.mark.slow)]
OTHERS = [("float32", False, 256), ("int8", False, 256), ("float32", True, None), ("int8", True, 256)]


@pytest.mark.parametrize("kind", [*KINDS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)], ids=str)
def test_bytes_are_those_that_each_has_alone(kind: tuple[Any, ...]) -> None:
    runner, given, counts = runner_of(*kind), requests(1, 7), Counts()
    compiled = runner.device.counters.pipelines
    alone = [answers(runner, [each])[0] for each in given]
    assert sum(len(found) for _, found in alone) > 30
    assert answers(runner, given, seed=2, counts=counts) == alone
    assert counts.cached >= 16, "none shared a beginning"
    # In pieces of one row and of three, on a pool that is too small for all.
    assert answers(runner, given, prompt_rows=1, seed=3) == alone
    assert answers(runner, given, prompt_rows=3, pages=3, seed=4, counts=counts) == alone
    assert counts.preemptions > 0, "nobody was preempted"
    assert runner.device.counters.pipelines == compiled, "a kernel was compiled after the load"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_many_arrivals(kind: tuple[Any, ...]) -> None:
    runner = runner_of(*kind)
    for seed in range(5, 9):
        given = requests(seed, 30)
        alone = [answers(runner, [each])[0] for each in given]
        for pages, prompt_rows in ((WHOLE, None), (5, 2), (7, 5)):
            assert answers(runner, given, pages=pages, prompt_rows=prompt_rows, seed=seed) == alone


def test_other_bounds_on_rows_and_sequences_change_nothing() -> None:
    """A program that was exported for longer pieces."""
    given = requests(1, 4)
    runner, _ = load_runner(program(replace(TINY, name="last-24", max_seq=24)), sequences=9, deterministic=True)
    assert (runner.bounds.rows, runner_of().bounds.rows) == (24, 8)
    assert answers(runner, given) == answers(runner_of(), given)
    runner.close()


@pytest.mark.parametrize("sequences", [1, 3])
def test_an_engine_is_opened_so(sequences: int) -> None:
    """Also one that runs one sequence at a time."""

    async def steps() -> None:
        options: dict[str, Any] = {"device": PaperDevice(), "sequences": sequences, "cache_bytes": 1 << 20}
        engine: Any = open_engine(shipped_model(), deterministic=True, **options)
        executor = engine._runner.executor if sequences > 1 else engine._model.engine.executor
        assert executor.plan.limits == replace(PaperDevice().limits, one_order=True)
        await engine.close()

    asyncio.run(steps())


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_single_sequence_in_any_pieces(deterministic: bool) -> None:
    """The same model without pages; and without the option the pieces show, so that this test can fail."""
    ids = requests(1, 1)[0].prompt
    with LanguageModel.load(program(TINY), deterministic=deterministic) as model:
        found = set()
        for pieces in ([len(ids)], [1] * len(ids), [2, 5, 1, len(ids) - 8]):
            model.reset()
            start = 0
            for count in pieces:
                model.prefill(ids[start : start + count])
                start += count
            found.add(model.logits().tobytes())
    assert (len(found) == 1) is deterministic
