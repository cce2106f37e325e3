"""Large results in memory of the host that Dawn's device writes itself: nobody's array is ever written again."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.device.buffers import Allocation
from liveshape.device.host_memory import LARGE
from liveshape.device.host_staging import KEPT
from liveshape.run.executor import Executor
from tests.support.chains import Chain, executor_of

pytestmark = pytest.mark.slow  # needs Dawn
ROWS, WIDTH = 320, 1024  # more than LARGE bytes


@pytest.fixture
def negating() -> Iterator[Executor]:
    chain = Chain()
    x = chain.input((ROWS, WIDTH))
    out = chain.node("aten.neg.default", x, chain.tensor((ROWS, WIDTH)))
    with closing(executor_of(chain.graph(out), open_device(backend="dawn"))) as executor:
        yield executor


def numbers(seed: int, rows: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, WIDTH)).astype(np.float32)


def slots(executor: Executor) -> list[Allocation]:
    found = [slot.buffer.parts[0][0] for slot in executor._staging._slots if slot is not None]
    assert all(each.host is not None for each in found), "large staging lies in memory of the host"
    return found


def test_results_that_are_held_stay_as_they_are(negating: Executor) -> None:
    assert 4 * ROWS * WIDTH > LARGE
    places = slots(negating)
    held: list[tuple[np.ndarray, np.ndarray]] = []
    for call in range(4 * KEPT):
        x = numbers(call, ROWS - 7 * call)
        (out,) = negating.execute([x])
        if call % 3:
            held.append((x, out[3:9]))  # a part keeps all of it
        del out
        for given, part in held:
            np.testing.assert_array_equal(part, -given[3:9])
    assert all(len(each.spares) < KEPT for each in places)


def test_memory_is_used_again_once_nobody_holds_it(negating: Executor) -> None:
    places = slots(negating)
    for call in range(3 * KEPT):
        x = numbers(call, ROWS)
        (out,) = negating.execute([x])
        np.testing.assert_array_equal(out, -x)
        del out
        gc.collect()
    assert [(each.host is not None, each.spares) for each in places] == [(True, [])] * len(places)


def test_calls_under_way_and_results_after_the_program_is_gone(negating: Executor) -> None:
    given = [numbers(call, ROWS - call) for call in range(7)]
    pending = [negating.start([x]) for x in given]
    outs = [call.result()[0] for call in reversed(pending)]
    outs.append(asyncio.run(negating.start([given[0]]).result_async())[0])
    negating.close()
    gc.collect()
    for x, out in zip([*reversed(given), given[0]], outs, strict=True):
        np.testing.assert_array_equal(out, -x)


def test_results_are_copied_where_no_memory_of_the_host_is_taken(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    def refused(device: object, nbytes: int) -> memoryview:
        raise OSError("no pages")

    monkeypatch.setattr("wgpudawn.backends.dawn.extras.allocate_host_memory", refused)
    executor: Executor = request.getfixturevalue("negating")  # made after that
    x = numbers(5, ROWS)
    (found,) = executor.execute([x])
    assert np.array_equal(found, -x)
    assert all(slot.buffer.parts[0][0].host is None for slot in executor._staging._slots if slot is not None)
