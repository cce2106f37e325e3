"""A thousand sequences come and go: nothing is compiled, no buffer is made, and a step plans a few operators."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from liveshape.llm.batch.loading import load_runner
from liveshape.llm.batch.pages import PagePool
from liveshape.llm.batch.scheduler import Scheduler, Sequence, Step
from liveshape.llm.sampling_settings import Sampling
from liveshape.run.pending import Pending
from tests.support.llamas import Tiny, program
from tests.survival.subjects import live_bytes

ARRIVALS, SEQUENCES = 1000, 12


@pytest.mark.slow
def test_arrivals_and_departures_write_bytes_of_tables() -> None:
    runner, _ = load_runner(program(Tiny("one layer", layers=1, max_seq=32)), sequences=SEQUENCES)
    executor, bounds, draw = runner.executor, runner.bounds, random.Random(1)
    pool = PagePool(bounds.pages, bounds.page_size)
    scheduler = Scheduler(pool, bounds.rows, bounds.sequences)
    flight: list[tuple[Step, Pending]] = []

    def run(count: int) -> int:
        """So many sequences, to their end or cancelled; returns how many steps they took."""
        steps = 0
        while count or scheduler.running or scheduler.waiting or flight:
            while count and len(scheduler.waiting) < 4:
                count -= 1
                prompt = [draw.randint(4, 90) for _ in range(draw.randint(1, 8))]
                scheduler.add(Sequence(prompt, len(prompt) + draw.randint(1, 3)))
            if draw.random() < 0.1 and scheduler.running:
                scheduler.finish(draw.choice(scheduler.running))
            step = scheduler.schedule()
            if step is not None:
                steps += 1
                flight.append((step, runner.submit(step, [Sampling()] * step.lines)))
            if len(flight) > 1 or step is None:
                read, pending = flight.pop(0)
                for sequence, _ in scheduler.read(read, pending.result()[0].reshape(-1).tolist()):
                    if len(sequence.tokens) == sequence.limit:
                        scheduler.finish(sequence)
        return steps

    run(40)  # what the driver and the caches of plans need once
    used, before, planned = live_bytes(runner.device), replace(runner.device.counters), executor.live.planned
    steps = run(ARRIVALS)
    after = runner.device.counters
    assert (after.pipelines, after.buffers) == (before.pipelines, before.buffers)
    assert live_bytes(runner.device) == used
    assert executor.live.planned - planned <= 8 * steps
    assert pool.in_use == 0
    runner.close()
