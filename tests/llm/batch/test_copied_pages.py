"""Pages that a step copies: every pool and the history have them before the step writes, without a new pipeline."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from liveshape.device.backends import open_device
from liveshape.llm.batch.loading import load_runner
from liveshape.llm.batch.pages import PageCopy, PagePool
from liveshape.llm.batch.runner import BatchRunner
from liveshape.llm.batch.scheduler import Scheduler, Sequence, Step
from liveshape.llm.program.batch_graph import pools_of
from liveshape.llm.sampling_settings import Sampling
from tests.support.llamas import Tiny, program

PAGES = 9


def contents(runner: BatchRunner) -> list[Any]:
    """Each pool, history included, by page."""
    executor, bounds = runner.executor, runner.bounds
    history = [tensor for tensor in executor.graph.tensors if tensor.name == "history"]
    pools = [*pools_of(executor.graph), *history]
    assert len(pools) == 5  # two layers of keys and values
    return [executor.state(pool).reshape(bounds.pages, bounds.page_size, -1) for pool in pools]


@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
def test_pages_are_copied_in_every_pool_before_the_step_writes(half: bool) -> None:
    width = 2 if half and open_device().limits.half else 4
    page = 16 * 2 * 2 * 2 * 8 * width  # rows, layers, keys and values, heads, head size, bytes
    runner, _ = load_runner(program(Tiny("last")), sequences=5, cache_bytes=PAGES * page, half_cache=half)
    bounds, draw = runner.bounds, random.Random(5)
    assert bounds.pages == PAGES
    scheduler = Scheduler(PagePool(bounds.pages, bounds.page_size), bounds.rows, bounds.sequences)
    for _ in range(4):
        scheduler.add(Sequence([draw.randint(4, 90) for _ in range(20)], 40))

    def run(copies: tuple[PageCopy, ...] = ()) -> Step:
        step = scheduler.schedule()
        assert step is not None
        (tokens,) = runner.submit(replace(step, copies=copies), [Sampling()] * step.lines).result()
        scheduler.read(step, tokens.reshape(-1).tolist())
        return step

    for _ in range(12):
        run()
    before = replace(runner.device.counters)
    for turn, count in enumerate((1, 3, 0, 5, 2)):
        if turn == 1:  # the first makes room to read a pool back
            before = replace(runner.device.counters)
        wanted = contents(runner)
        copies = tuple(PageCopy(draw.randrange(PAGES), draw.randrange(PAGES)) for _ in range(count))
        step = run(copies)
        written = {
            int(slot) for piece in step.pieces for slot in piece.table.slots(piece.start, piece.start + piece.count)
        }
        for pool, found in zip(wanted, contents(runner), strict=True):
            for source, target in copies:
                pool[target] = pool[source]
            for slot in range(bounds.slots):
                place = divmod(slot, bounds.page_size)
                assert slot in written or (pool[place] == found[place]).all()
    after = runner.device.counters
    assert (after.pipelines, after.buffers) == (before.pipelines, before.buffers)
    runner.close()
