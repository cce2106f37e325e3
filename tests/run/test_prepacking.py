"""Constants in a layout of their own: made once at load, on the device, and only of what no call writes."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Graph, Limits
from liveshape.graph.live import LiveTensor
from liveshape.kernels.requests import Prepack, Prepacked, Scratch
from liveshape.ops.registry import OPS
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from liveshape.run.weights import Weights
from tests.support.chains import Chain
from tests.support.paper import PaperDevice
from tests.survival.subjects import live_bytes

ROWS, WIDTH = 9, 5
WEIGHTS = np.random.default_rng(0).standard_normal((3, 1, WIDTH)).astype(np.float32)


@pytest.fixture(autouse=True)
def _of_exponents(monkeypatch: pytest.MonkeyPatch) -> None:
    """x * weight is x * exp(weight) in these tests, whose exp is prepacked where the weight is constant."""
    exp, times = OPS["aten.exp.default"].run, OPS["aten.mul.Tensor"]

    def run(x: LiveTensor, weight: LiveTensor, out: LiveTensor) -> Generator[Any, Any, None]:
        powers = yield Prepacked(weight, weight.dtype, weight.max_shape)
        if powers is None:
            powers = yield Scratch(weight.dtype, weight.max_shape)
            yield from exp(weight, powers)
        else:
            for dispatch in exp(weight, powers):
                yield Prepack(dispatch)
        yield from times.run(x, powers, out)

    monkeypatch.setitem(OPS, "aten.mul.Tensor", replace(times, run=run))


def chained(*, written: tuple[int, ...] = ()) -> Graph:
    """x times each weight in turn; those that are `written` are set to others before."""
    chain = Chain()
    x = chain.input((ROWS, WIDTH))
    for place, array in enumerate(WEIGHTS):
        weight = chain.constant(array)
        if place in written:
            chain.node("aten.copy_.default", weight, chain.constant(-array), False, weight)
        x = chain.node("aten.mul.Tensor", x, weight, chain.tensor((ROWS, WIDTH)))
    return chain.graph(x)


def expected(x: Any, weights: Any) -> Any:
    return x * np.exp(weights).prod(0)


def rows(size: int) -> Any:
    return np.random.default_rng(size).standard_normal((size, WIDTH)).astype(np.float32)


def kernels(executor: Executor) -> list[str]:
    commands = executor.encoder.commands(executor.live, 0, len(executor.graph.nodes))
    return [command.label.rpartition(" ")[2] for command in commands]


def test_calls_do_not_pack_again() -> None:
    device = open_device()
    plan = compile(chained(), device.limits)
    assert [step.node for step in plan.prepack] == [0, 1, 2]
    executor = Executor(plan, device)
    for size in (ROWS, 1, 4, 2, ROWS):
        executor.poison()
        np.testing.assert_allclose(executor.execute([rows(size)])[0], expected(rows(size), WEIGHTS), rtol=1e-6)
        assert kernels(executor) == ["pointwise/mul"] * 3
    executor.close()


def test_what_calls_write_is_packed_at_every_call() -> None:
    """Beside others that are not: equal nodes, which share no plan."""
    device = open_device()
    plan = compile(chained(written=(1,)), device.limits)
    assert [step.node for step in plan.prepack] == [0, 3]
    executor, weights = Executor(plan, device), [WEIGHTS[0], -WEIGHTS[1], WEIGHTS[2]]
    for size in (4, ROWS, 1):
        executor.poison()
        np.testing.assert_allclose(executor.execute([rows(size)])[0], expected(rows(size), weights), rtol=1e-6)
        assert kernels(executor).count("pointwise/exp") == 1
    executor.close()


def test_executors_share_what_is_packed_and_closing_frees_it() -> None:
    device = open_device()
    before = live_bytes(device)
    plan = compile(chained(), device.limits)
    weights = Weights(plan, device)
    packed = weights.nbytes
    executors = [Executor(plan, device, weights=weights) for _ in range(2)]
    for executor in executors:
        np.testing.assert_allclose(executor.execute([rows(3)])[0], expected(rows(3), WEIGHTS), rtol=1e-6)
        executor.close()
    assert packed == sum(plan.memory.blocks[plan.memory.storages[tensor].block] for tensor in plan.prepacked) * 2
    weights.close()
    assert live_bytes(device) == before


class Failing(PaperDevice):
    """Refuses the submit of so many."""

    left = 0

    def submit(self, *args: Any, **named: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("no more")
        super().submit(*args, **named)


def test_a_device_that_fails_meanwhile_keeps_nothing() -> None:
    device: Device = Failing(Limits())
    plan = compile(chained(), device.limits)
    with pytest.raises(RuntimeError, match="no more"):
        Weights(plan, device)
    assert device.counters.live_bytes == 0
