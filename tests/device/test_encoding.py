"""The arena and the commands: params lie where they lay, little is written, commands stay while kernels stay."""

from __future__ import annotations

from typing import Any

import numpy as np

from liveshape.device.backends import open_device
from liveshape.plan.compiling import compile
from liveshape.plan.params import Arena, Slot
from liveshape.run.executor import Executor
from tests.support.chains import Chain


def test_only_what_differs_is_uploaded() -> None:
    arena = Arena(256)
    first, second, third = (Slot(arena.place(nbytes)) for nbytes in (16, 300, 16))
    assert [slot.offset for slot in (first, second, third)] == [0, 256, 768]
    assert arena.dirty() is None
    arena.store(second, b"b" * 300)
    assert arena.dirty() == (256, b"b" * 300)
    arena.store(first, b"a" * 16)
    start, data = arena.dirty() or (-1, b"")
    assert (start, len(data)) == (0, 556)
    assert bytes(data[:17]) == b"a" * 16 + b"\0"
    arena.mark_clean()
    assert arena.dirty() is None
    arena.store(third, b"c" * 16)
    assert arena.dirty() == (768, b"c" * 16)
    arena.mark_dirty()
    start, data = arena.dirty() or (-1, b"")
    assert (start, len(data)) == (0, len(arena.data)), "a new device has seen nothing"


def _moving_slice() -> tuple[Executor, Any]:
    """A slice whose params differ at every position; from every fourth row on it is copied in words of four."""
    device = open_device()
    chain = Chain()
    x, start, end = chain.input((3000, 5)), chain.scalar(given=True), chain.scalar(given=True)
    part = chain.node("aten.slice_copy.Tensor", x, 0, start, end, 1, chain.tensor((2, 5)))
    out = chain.node("aten.add.Tensor", part, part, 1, chain.tensor((2, 5)))
    data = np.random.default_rng(0).standard_normal((3000, 5)).astype(np.float32)
    return Executor(compile(chain.graph(out), device.limits), device), data


def test_params_that_never_repeat_take_one_place() -> None:
    executor, x = _moving_slice()
    executor.execute([x, 4, 6])
    buffers = executor.device.counters.buffers
    for start in range(0, 2998, 7):
        (out,) = executor.execute([x, start, start + 2])
        np.testing.assert_array_equal(out, 2 * x[start : start + 2])
    assert len(executor.live.arena.data) <= executor.plan.uniform_bytes, "a place for each route, not for each number"
    assert executor.device.counters.buffers == buffers


def test_commands_stay_while_only_numbers_move() -> None:
    executor, x = _moving_slice()
    executor.execute([x, 4, 6])
    before = executor.encoder.commands(executor.live, 0, 2)
    assert len(before) == 2
    executor.execute([x, 4, 6])
    assert executor.encoder.commands(executor.live, 0, 2) is before
    executor.execute([x, 8, 10])
    assert executor.encoder.commands(executor.live, 0, 2) is before
    executor.execute([x, 8, 8])
    assert executor.encoder.commands(executor.live, 0, 2) == [], "of nothing there is nothing to run"
    (out,) = executor.execute([x, 12, 14])
    np.testing.assert_array_equal(out, 2 * x[12:14])
    again = executor.encoder.commands(executor.live, 0, 2)
    assert [one is other for one, other in zip(again, before, strict=True)] == [True, True]


def test_only_the_params_that_moved_are_written() -> None:
    executor, x = _moving_slice()
    executor.execute([x, 4, 6])
    written: list[tuple[int, int]] = []
    write = executor.device.write

    def noted(arena: Any, offset: int, data: Any) -> None:
        written.append((offset, memoryview(data).nbytes))
        write(arena, offset, data)

    executor.device.write = noted  # type: ignore[method-assign]
    try:
        executor.execute([x, 4, 6])
        assert written == [(0, x.nbytes)], "the input alone"
        written.clear()
        executor.execute([x, 8, 10])
    finally:
        executor.device.write = write  # type: ignore[method-assign]
    (slot,) = executor.live.nodes[0].group.route.slots
    assert written == [(0, x.nbytes), (slot.offset, len(slot.params))], "the sum's params are what they were"
