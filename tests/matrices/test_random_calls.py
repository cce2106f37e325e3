"""Random calls from several threads whose results lie in memory of the host: started, handed to another thread, read in
any order, awaited, held for a while, in part or whole, and dropped. What anybody holds stays what it is.

LIVESHAPE_FUZZ sets the number of runs.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import deque
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.device.host_memory import LARGE
from liveshape.run.executor import Executor
from liveshape.run.pending import Pending
from tests.support.chains import Chain, executor_of

pytestmark = pytest.mark.slow  # needs Dawn
COUNT = int(os.environ.get("LIVESHAPE_FUZZ", "6"))
ROWS, WIDTH = 300, 1024  # with all rows a result is more than LARGE bytes, with some it is less
THREADS, STEPS, WAITING, HELD = 4, 30, 3, 5


def program() -> Executor:
    """Two large results, one of which is written in place once it was read, and one of a row."""
    chain = Chain()
    x, y = chain.input((ROWS, WIDTH)), chain.input((WIDTH,))
    negative = chain.node("aten.neg.default", x, chain.tensor((ROWS, WIDTH)))
    doubled = chain.node("aten.add.Tensor", x, x, 1, chain.tensor((ROWS, WIDTH)))
    most = chain.node("aten.amax.default", doubled, (0,), False, chain.tensor((WIDTH,)))
    chain.node("aten.copy_.default", doubled, y, False, doubled)
    return executor_of(chain.graph(negative, most, doubled), open_device(backend="dawn"))


def inputs_of(draw: random.Random) -> tuple[np.ndarray, np.ndarray]:
    rows = draw.choice((1, 7, ROWS - 1, ROWS, draw.randint(1, ROWS)))
    generator = np.random.default_rng(draw.randrange(1 << 30))
    return generator.standard_normal((rows, WIDTH)).astype(np.float32), generator.random(WIDTH, np.float32)


def results_of(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    return [-x, 2 * x.max(0), np.broadcast_to(y, x.shape)]


class Crew:
    """Threads that share an executor, under a lock while they start a call, as those of a method do."""

    def __init__(self, executor: Executor, seed: int) -> None:
        self.executor, self.lock = executor, threading.Lock()
        self.waiting: deque[tuple[Pending, list[int], list[np.ndarray]]] = deque()  # of whichever thread
        self.wrong: list[BaseException] = []
        self.large = 0  # results that were held when the next calls wrote theirs
        self.threads = [threading.Thread(target=self._run, args=(seed, number)) for number in range(THREADS)]

    def work(self) -> None:
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()
        if self.wrong:
            raise self.wrong[0]

    def _run(self, seed: int, number: int) -> None:
        draw = random.Random(f"{seed} {number}")
        held: list[tuple[np.ndarray, np.ndarray]] = []
        try:
            for _ in range(STEPS):
                self._step(draw, held)
                for have, want in held:
                    np.testing.assert_array_equal(have, want)
        except BaseException as error:
            self.wrong.append(error)

    def _step(self, draw: random.Random, held: list[tuple[np.ndarray, np.ndarray]]) -> None:
        given = inputs_of(draw)
        wanted = sorted(draw.sample(range(3), draw.randint(1, 3)))
        with self.lock:
            self.waiting.append((self.executor.start(given, wanted), wanted, results_of(*given)))
        while len(self.waiting) > WAITING or draw.random() < 0.6:
            try:
                pending, places, want = self.waiting.popleft() if draw.random() < 0.5 else self.waiting.pop()
            except IndexError:  # another thread was quicker
                break
            found: list[Any] = asyncio.run(pending.result_async()) if draw.random() < 0.3 else pending.result()
            for place, have in zip(places, found, strict=True):
                self._hold(draw, held, have, want[place])
        del held[: max(0, len(held) - draw.randint(0, HELD))]

    def _hold(self, draw: random.Random, held: list[tuple[np.ndarray, np.ndarray]], have: Any, want: Any) -> None:
        np.testing.assert_array_equal(have, want)
        if draw.random() < 0.5:
            self.large += have.nbytes > LARGE
            part = slice(draw.randrange(len(have)), None) if draw.random() < 0.5 else slice(None)
            held.append((have[part], want[part]))


@pytest.mark.parametrize("seed", range(COUNT))
def test_results_that_threads_hold_stay_as_they_are(seed: int) -> None:
    executor = program()
    crew = Crew(executor, seed)
    crew.work()
    left = list(crew.waiting)
    crew.waiting.clear()
    for pending, places, want in left[1:]:  # the first one is dropped, unread
        for have, place in zip(pending.result(), places, strict=True):
            np.testing.assert_array_equal(have, want[place])
    executor.close()
    assert crew.large > THREADS
