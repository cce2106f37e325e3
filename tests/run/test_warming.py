"""Warm-up of kernels that a driver finishes at their first dispatch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from liveshape import llm
from liveshape.device.backends import open_device
from liveshape.device.protocol import Command, CompilesAtDispatch
from liveshape.errors import DeviceError
from liveshape.graph import Limits
from liveshape.kernels import Variant
from liveshape.llm import Sampling, open_engine
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Plan
from liveshape.run import warming
from liveshape.shipped import shipped_model
from tests.ops.cases import attention as cases
from tests.support.graphs import build
from tests.support.paper import PaperDevice

OWN = Sampling(temperature=0.7, top_p=0.9)  # as the shipped model's own settings, which have both
SOFTWARE = Limits(max_invocations=32, max_cooperating_threads=4, lanes=8)


class Late(PaperDevice):
    """A device that notes which kernels it was given, and over how much."""

    compiles_at_dispatch = True

    def __init__(self, other: Late | None = None, seconds: float = 0.0) -> None:
        super().__init__(SOFTWARE)
        self.other, self.seconds = other, seconds
        self.dispatched: list[tuple[Variant, tuple[int, int, int]]] = []

    def another(self) -> Late:
        if self.other is None:
            raise DeviceError("there is but one")
        return self.other

    def bind(self, variant: Variant, buffers: Any, uniforms: Any) -> Any:
        return variant

    def submit(self, commands: Sequence[Command], *_: Any, **__: Any) -> None:
        self.dispatched += [(command.bound, command.slot.grid) for command in commands]
        time.sleep(self.seconds)

    @property
    def order(self) -> list[Variant]:
        return [variant for variant, _ in self.dispatched]


@pytest.fixture(scope="module")
def plan() -> Plan:
    case = cases.cached("warm", heads=(6, 2), size=20, capacity=64, sizes=(1, 9))
    return compile(build(case, 9), SOFTWARE)


def test_every_kernel_is_dispatched_over_nothing(plan: Plan) -> None:
    device, told = Late(), []
    warming.finish(device, plan.kernels, lambda done, total: told.append((done, total)))
    count = len(plan.kernels)
    assert sorted(map(id, device.order)) == sorted(map(id, plan.kernels))
    assert {grid for _, grid in device.dispatched} == {(0, 1, 1)}
    assert told[0] == (0, count)
    assert told[-1] == (count, count)


def test_another_device_helps_and_the_first_has_all(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "_CACHED", -1.0)
    for name in warming._NO_CACHE:
        monkeypatch.delenv(name, raising=False)
    kernels = [*plan.kernels] * 4
    helper = Late()
    device = Late(helper, seconds=0.01)
    warming.finish(device, kernels, lambda *_: None)
    assert helper.dispatched
    assert len(device.dispatched) == len(kernels), "what the other compiled is fetched from the driver's cache"


def test_without_another_device_or_a_cache_the_first_does_all(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "_CACHED", -1.0)
    alone = Late()
    warming.finish(alone, plan.kernels, lambda *_: None)
    monkeypatch.setenv("MESA_SHADER_CACHE_DISABLE", "true")
    helper = Late()
    device = Late(helper)
    warming.finish(device, plan.kernels, lambda *_: None)
    assert len(alone.dispatched) == len(device.dispatched) == len(plan.kernels)
    assert not helper.dispatched


def test_an_interrupt_ends_both(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "_CACHED", -1.0)
    device = Late(Late(seconds=0.01), seconds=0.01)

    def interrupted(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    kernels = [*plan.kernels] * 20
    with pytest.raises(KeyboardInterrupt):
        warming.finish(device, kernels, interrupted)
    assert len(device.dispatched) + len(device.another().dispatched) < len(kernels)


@pytest.mark.parametrize("sampling", [Sampling(), OWN], ids=["greedy", "model's own"])
def test_a_load_compiles_what_any_short_call_takes(sampling: Sampling) -> None:
    device, told = Late(), []
    model, _ = llm.load(shipped_model(), device=device, kernels=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(device.order), len(device.order))
    assert {grid for _, grid in device.dispatched} == {(0, 1, 1)}
    for rows in (*range(1, 10), 17, 64, 200):
        call = model.engine._call(rows, sampling)
        assert not {*warming.kernels_of(model.engine.executor.plan, [call])} - {*device.order}, rows
    model.close()


def test_an_engine_compiles_what_first_requests_take() -> None:
    device = Late()
    with open_engine(shipped_model(), device=device, sequences=8) as engine:
        assert isinstance(engine, BatchEngine)
        compiled, runner = {*device.order}, engine._runner
        prompts = [runner._prompt(rows) for rows in (*range(1, 10), 60)]
        tokens = [runner._decode(count, (OWN,)) for count in range(1, 9)]
        for call in (*prompts, *tokens):
            assert not {*warming.kernels_of(runner.executor.plan, [call])} - compiled, call


def test_a_gpu_compiles_at_load() -> None:
    device = PaperDevice(Limits())
    assert not isinstance(device, CompilesAtDispatch)
    with LanguageModel.load(shipped_model(), device=device) as model:
        model.warm_up()


def test_a_model_is_the_same_after_its_warm_up() -> None:
    device = open_device()
    with LanguageModel.load(shipped_model(), device=device) as model:
        before, told = device.counters.live_bytes, []
        model.warm_up(progress=lambda done, total: told.append((done, total)))
        assert device.counters.live_bytes == before
        if device.adapter.software and device.adapter.library == "wgpu":
            assert told[-1][0] == told[-1][1] > 10
        pipelines = device.counters.pipelines
        model.prefill(range(1, 10))
        warm = model.logits()
        assert device.counters.pipelines == pipelines
    with LanguageModel.load(shipped_model(), device=device) as model:
        model.prefill(range(1, 10))
        assert np.array_equal(model.logits(), warm)
