"""Executors: several of one plan do not see each other, and one that is cut short anywhere is right afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import liveshape
from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Graph
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor
from liveshape.run.weights import Weights
from tests.support.chains import Chain
from tests.survival.lines import no_signal_comes

ROWS, WIDTH = 40, 64
WEIGHT = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32)
TABLE = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)


def layer_with_state() -> Graph:
    """x times a weight, what the call before gave (a state), and a row of a table at a live position."""
    chain = Chain()
    x, position = chain.input((ROWS, WIDTH)), chain.input((1,), "int64")
    start = chain.node("et_vk.select_as_symint.default", position, 0, 0, chain.scalar())
    end = chain.node("add", start, 2, chain.scalar())
    weight, table = chain.constant(WEIGHT), chain.constant(TABLE)
    state = chain.constant(np.zeros((1, WIDTH), np.float32))
    out = chain.node("aten.linear.default", x, weight, None, chain.tensor((ROWS, WIDTH)))
    before = chain.node("aten.clone.default", state, None, chain.tensor((1, WIDTH)))
    row = chain.node("aten.slice_copy.Tensor", x, 0, 0, 1, 1, chain.tensor((1, WIDTH)))
    chain.node("aten.copy_.default", state, row, False, state)
    part = chain.node("aten.slice_copy.Tensor", table, 0, start, end, 1, chain.tensor((2, WIDTH)))
    return chain.graph(out, before, part)


def inputs_of(size: int, seed: int, position: int = 0) -> list[Any]:
    x = np.random.default_rng(seed).standard_normal((size, WIDTH)).astype(np.float32)
    return [x, np.array([position])]


@contextmanager
def created(device: Device) -> Iterator[list[int]]:
    """The bytes of every buffer that is created meanwhile."""
    found: list[int] = []
    create = device._create

    def noted(nbytes: int, *rest: Any) -> Any:
        found.append(nbytes)
        return create(nbytes, *rest)

    device._create = noted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        del device._create  # type: ignore[method-assign]


def test_executors_of_a_plan_share_its_weights_and_nothing_else() -> None:
    device = open_device()
    plan = compile(layer_with_state(), device.limits)
    constants = WEIGHT.nbytes + TABLE.nbytes
    with created(device) as once:
        weights = Weights(plan, device)
    assert sum(once) == weights.nbytes == constants
    with created(device) as shared:
        first, second = (Executor(plan, device, weights=weights) for _ in range(2))
    with created(device) as alone:
        third = Executor(plan, device)
    assert sum(alone) == constants + sum(shared) // 2
    kept = [np.zeros((1, WIDTH), np.float32) for _ in range(2)]
    for turn, (one, other) in enumerate(((ROWS, 1), (7, 7), (1, ROWS), (29, 3), (2, 5))):
        for place, (executor, size) in enumerate(((first, one), (second, other))):
            x, position = inputs_of(size, 10 * turn + place, (turn * 7 + place) % 30)
            out, before, part = executor.execute([x, position])
            np.testing.assert_allclose(out, x @ WEIGHT.T, 1e-4, 1e-4)
            np.testing.assert_array_equal(before, kept[place], err_msg="the state is an executor's own")
            np.testing.assert_array_equal(part, TABLE[position[0] : position[0] + 2])
            kept[place] = x[:1]
    first.close()
    x, position = inputs_of(3, 99)
    np.testing.assert_allclose(second.execute([x, position])[0], x @ WEIGHT.T, 1e-4, 1e-4)
    third.close()
    second.close()
    weights.close()


def test_calls_under_way_at_once_do_not_mix() -> None:
    device = open_device()
    plan = compile(layer_with_state(), device.limits)
    weights = Weights(plan, device)
    executors = [Executor(plan, device, weights=weights) for _ in range(3)]
    for turn in range(4):
        given = [inputs_of(1 + (turn * 5 + place * 11) % ROWS, place, turn + place) for place in range(3)]
        under_way = [executor.start(each) for executor, each in zip(executors, given, strict=True)]
        for (x, position), pending in reversed([*zip(given, under_way, strict=True)]):
            out, _, part = pending.result()
            np.testing.assert_allclose(out, x @ WEIGHT.T, 1e-4, 1e-4)
            np.testing.assert_array_equal(part, TABLE[position[0] : position[0] + 2])


# Cut short


def moving_slice(choices: Choices | None = None) -> tuple[Executor, Any]:
    device = open_device()
    chain = Chain()
    x, start, end = chain.input((300, 5)), chain.scalar(given=True), chain.scalar(given=True)
    part = chain.node("aten.slice_copy.Tensor", x, 0, start, end, 1, chain.tensor((8, 5)))
    out = chain.node("aten.add.Tensor", part, part, 1, chain.tensor((8, 5)))
    data = np.arange(1500, dtype=np.float32).reshape(300, 5)
    return Executor(compile(chain.graph(out), device.limits, choices), device), data


@pytest.mark.parametrize("call", ["write", "submit", "read"])
def test_an_interrupt_in_the_device_leaves_no_trace(call: str) -> None:
    """Between planning and upload: the same call afterwards gave another row."""
    executor, data = moving_slice()
    executor.execute([data, 0, 2])

    def once(*args: Any, **named: Any) -> Any:
        delattr(executor.device, call)
        raise KeyboardInterrupt

    for start in (123, 124, 8):
        setattr(executor.device, call, once)
        with pytest.raises(KeyboardInterrupt):
            executor.execute([data, start, start + 3])
        (got,) = executor.execute([data, start, start + 3])
        np.testing.assert_array_equal(got, 2 * data[start : start + 3])


OURS = tuple(str(Path(liveshape.__file__).parent / room) for room in ("plan", "graph", "ops", "kernels"))
OURS += tuple(str(Path(liveshape.__file__).parent / "run" / name) for name in ("executor.py", "encoding.py"))


@contextmanager
def interrupted(after: int) -> Iterator[list[int]]:
    """KeyboardInterrupt before a line of ours, that many lines from here; gives how many there were."""
    lines = [0]
    last: dict[int, int] = {}  # the line before, by the identity of a frame

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "return":
            last.pop(id(frame), None)
        if event == "line":
            before, last[id(frame)] = last.get(id(frame)), frame.f_lineno
            if no_signal_comes(frame, before):  # it would keep a lock for ever, which no signal can do
                return trace
            lines[0] += 1
            if lines[0] == after:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("tracing", [True, False], ids=["computed", "planned"])
def test_an_interrupt_between_any_two_lines_leaves_no_trace(tracing: bool) -> None:
    executor, data = moving_slice(Choices(tracing=tracing))

    def call(start: int, size: int) -> None:
        (got,) = executor.execute([data, start, start + size])
        np.testing.assert_array_equal(got, 2 * data[start : start + size])

    for start in (1, 2, 3, 5):
        call(start, 2)
    with interrupted(-1) as lines:
        call(6, 3)
    assert lines[0] > 50
    for line in range(1, lines[0] + 20):
        start = 7 + line % 250
        with interrupted(line):
            try:
                call(start, 2 + line % 3)
            except KeyboardInterrupt:
                pass
            else:
                assert line > 50, "the call was shorter than that"
        call(start, 2 + line % 3)


def test_scratch_of_another_dtype_below_the_bound() -> None:
    """Values of halves are converted on their way: the copy has their live shape, where it had its bound."""
    device = open_device()
    chain = Chain()
    x, rows = chain.input((8, 4), static=True), chain.input((5,), "int64")
    values = chain.input((5, 4), "float16")
    out = chain.node("aten.index_put.default", x, (rows,), values, False, chain.tensor((8, 4)))
    executor = Executor(compile(chain.graph(out), device.limits), device)
    for count in (3, 5, 1, 4):
        executor.poison()
        given = [np.zeros((8, 4), np.float32), np.arange(count), np.ones((count, 4), np.float16)]
        (got,) = executor.execute(given)
        np.testing.assert_array_equal(got, np.repeat([1, 0], [count, 8 - count])[:, None] * np.ones((1, 4)))
