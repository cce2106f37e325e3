"""Where time goes: a watched device computes the same, and its clock runs forwards around every command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from liveshape.device import watching
from liveshape.device.backends import open_device
from liveshape.device.protocol import Clock, Command
from liveshape.device.webgpu import WebGpuDevice
from liveshape.run.executor import Executor
from tests.support.chains import Chain, executor_of


def chain_of(length: int) -> Executor:
    chain = Chain()
    out = x = chain.input((40, 50))
    for _ in range(length):
        out = chain.node("aten.add.Tensor", out, x, 1, chain.tensor((40, 50)))
    return executor_of(chain.graph(out), open_device())


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("clock", list(Clock))
def test_a_watched_call_gives_the_same_and_its_times(
    clock: Clock, inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not inside:
        device = cast(WebGpuDevice, open_device())
        monkeypatch.setattr(device, "_library", replace(device._library, clock_inside="no clock inside of passes"))
    executor, x = chain_of(3), np.arange(2000, dtype=np.float32).reshape(40, 50)
    device = executor.device
    noted: list[Sequence[Command]] = []
    with device.watched(clock, noted.append) as watched:
        (out,) = executor.execute([x])
    np.testing.assert_array_equal(out, 4 * x)
    assert [[command.origin[0] for command in commands] for commands in noted] == [[0, 1, 2]]
    assert {name for name, _, _ in watched.spans} == {"encode", "submit", "wait"}
    assert all(begin <= end for _, begin, end in watched.spans)
    if clock is Clock.NOTHING:
        assert not watched.submits
    else:
        ((commands, times),) = watched.submits
        assert list(commands) == list(noted[0])
        assert len(times) == (1 if clock is Clock.SUBMITS else 3)
        ticks = [tick for row in times for tick in row]
        assert ticks == sorted(ticks)
        assert ticks[-1] > ticks[0]
    before = len(noted)
    executor.execute([x])
    assert len(noted) == before, "nobody watches any more"


def test_more_commands_than_a_query_set_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_MOST_QUERIES", 32)  # resolved to places that must be multiples of 256 bytes
    executor = chain_of(20)
    with executor.device.watched(Clock.COMMANDS) as watched:
        executor.execute([np.ones((40, 50), np.float32)])
    ((commands, times),) = watched.submits
    ticks = [tick for row in times for tick in row]
    assert len(commands) == len(times) == 20
    assert ticks == sorted(ticks)


def test_a_device_without_a_clock_gives_the_times_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = chain_of(1)
    monkeypatch.setattr(open_device(), "has_clock", False)
    with executor.device.watched(Clock.COMMANDS) as watched:
        executor.execute([np.ones((40, 50), np.float32)])
    assert watched.spans
    assert not watched.submits


def test_an_error_inside_ends_the_watching() -> None:
    executor = chain_of(1)
    with pytest.raises(RuntimeError, match="enough"), executor.device.watched(Clock.COMMANDS) as watched:
        raise RuntimeError("enough")
    executor.execute([np.ones((40, 50), np.float32)])
    assert not watched.spans
