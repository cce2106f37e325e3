"""The arena and the commands: equal params share a slot, little is written, a full arena starts anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from liveshape.device.webgpu import open_device
from liveshape.run.encoding import Arena
from liveshape.run.executor import Executor
from tests.support.chains import Chain


def test_equal_params_share_a_slot_and_only_new_ones_are_uploaded() -> None:
    arena = Arena(1024, 256)
    assert [arena.place(params) for params in (b"a" * 16, b"b" * 300, b"a" * 16)] == [0, 256, 0]
    start, data = arena.take_fresh()
    assert (start, len(data)) == (0, 768)
    assert arena.place(b"b" * 300) == 256
    assert arena.take_fresh() == (768, b"")
    assert arena.place(b"c" * 16) == 768
    assert arena.take_fresh() == (768, b"c" * 16 + bytes(240))


def test_a_full_arena_starts_anew() -> None:
    arena = Arena(512, 256)
    assert (arena.place(b"a"), arena.place(b"b"), arena.place(b"c")) == (0, 256, -1)
    assert arena.restarts == 1
    assert arena.place(b"c") == 0
    assert arena.take_fresh() == (0, b"c" + bytes(255))


def _moving_slice() -> tuple[Executor, Any]:
    """A slice whose params differ at every position."""
    device = open_device()
    chain = Chain(device.limits)
    x, start, end = chain.input((3000, 5)), chain.scalar(given=True), chain.scalar(given=True)
    part = chain.node("aten.slice_copy.Tensor", x, 0, start, end, 1, chain.tensor((2, 5)))
    out = chain.node("aten.add.Tensor", part, part, 1, chain.tensor((2, 5)))
    return Executor(chain.graph(out), device), np.random.default_rng(0).standard_normal((3000, 5)).astype(np.float32)


def test_params_that_never_repeat_outlast_the_arena() -> None:
    executor, x = _moving_slice()
    for start in range(0, 2998, 7):
        (out,) = executor.execute([x, start, start + 2])
        np.testing.assert_array_equal(out, 2 * x[start : start + 2])
    executor.encoder.arena.nbytes = 1024
    for start in range(200):
        (out,) = executor.execute([x, start, start + 2])
        np.testing.assert_array_equal(out, 2 * x[start : start + 2])
    assert executor.encoder.arena.restarts > 10


def test_commands_of_unmoved_nodes_are_kept() -> None:
    executor, x = _moving_slice()
    executor.execute([x, 0, 2])
    before = executor.encoder.commands(0, 2)
    executor.execute([x, 0, 2])
    assert executor.encoder.commands(0, 2) is before
    executor.execute([x, 5, 7])
    after = executor.encoder.commands(0, 2)
    assert after[0] is not before[0]
    assert after[1] is before[1]
