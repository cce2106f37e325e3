"""Inputs of products are rounded to float16 only where the user permits it, and only for matrix units. No GPU."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from liveshape.cli import _parser
from liveshape.errors import InputError
from liveshape.graph import Limits, MatrixShape
from liveshape.graph.activation_kinds import ACTIVATIONS, resolve_activations
from liveshape.graph.live import LiveTensor
from liveshape.kernels.requests import GetLimits
from liveshape.llm.batch.loading import load_runner
from liveshape.llm.generation.generating import load as load_text
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.serving.engine_opening import open_engine
from liveshape.model import load
from liveshape.ops.registry import OPS
from liveshape.plan.compiling import compile
from liveshape.plan.plan_state import PlanState
from liveshape.program.compile_target import CompileTarget
from liveshape.runtime import Runtime
from liveshape.serve.fleet_options import FleetOptions
from liveshape.shipped import shipped_model
from liveshape.tools.measuring.capacity import capacity_of_shape
from liveshape.tools.measuring.subject import Subject, Work
from tests.support.chains import Chain
from tests.support.paper import PaperDevice

HALVES = MatrixShape("float16", "float32", 16, 16, 16)
SMALL_HALVES = MatrixShape("float16", "float32", 8, 8, 8)
FLOATS = MatrixShape("float32", "float32", 8, 8, 8)
INTEGERS = MatrixShape("int8", "int32", 16, 16, 32)
ROUNDED_SUMS = MatrixShape("float16", "float16", 16, 16, 16)
ALL = (HALVES, ROUNDED_SUMS, SMALL_HALVES, FLOATS, INTEGERS)
WITH = Limits(matrices=(HALVES,))


@pytest.mark.parametrize(
    ("half_inputs", "dtype", "wanted"),
    [
        (False, "float32", (FLOATS,)),
        (True, "float32", (HALVES, SMALL_HALVES, FLOATS)),
        (False, "float16", (HALVES, SMALL_HALVES)),
        (True, "float16", (HALVES, SMALL_HALVES)),
        (False, "int8", (INTEGERS,)),
        (True, "int8", (INTEGERS,)),
        (True, "int32", ()),
    ],
)
def test_which_matrices_may_multiply(half_inputs: bool, dtype: str, wanted: tuple[MatrixShape, ...]) -> None:
    """In the device's order, and never with sums of float16."""
    assert Limits(matrices=ALL, half_inputs=half_inputs).matrices_of(dtype) == wanted
    assert Limits(half_inputs=half_inputs).matrices_of(dtype) == ()


@pytest.mark.parametrize(
    ("matrices", "wanted"),
    [((), "float32"), ((INTEGERS, ROUNDED_SUMS, FLOATS), "float32"), ((HALVES,), "float16"), (ALL, "float16")],
)
def test_auto_is_float16_on_its_matrix_units(matrices: tuple[MatrixShape, ...], wanted: str) -> None:
    limits = Limits(matrices=matrices)
    assert resolve_activations("auto", limits) == wanted
    assert [resolve_activations(kind, limits) for kind in ACTIVATIONS] == [*ACTIVATIONS]


@pytest.mark.parametrize("given", ["int4", "", None, 16, "FLOAT16"])
def test_other_kinds_are_refused_before_a_device_is_opened(given: Any) -> None:
    for use in (CompileTarget, Runtime, lambda device, activations: load("none.pte", activations=activations)):
        with pytest.raises(
            InputError, match=re.escape(f"activations {given!r}: float32, float16, int8 or auto is possible")
        ):
            use("a device that is not there", activations=given)


def test_limits_carry_the_choice() -> None:
    for kind, rounds in {"float32": False, "int8": False, "float16": True, "auto": True}.items():
        assert CompileTarget(PaperDevice(WITH), activations=kind).limits == replace(WITH, half_inputs=rounds)
    assert not CompileTarget(PaperDevice(), activations="auto").limits.half_inputs
    both = CompileTarget(PaperDevice(WITH), activations="float16", deterministic=True).limits
    assert both == replace(WITH, half_inputs=True, one_order=True)
    ordered = CompileTarget(PaperDevice(WITH), activations="auto", deterministic=True)
    assert (ordered.activations, ordered.limits) == ("float32", replace(WITH, one_order=True))


def test_an_operator_asks_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it may use comes back from GetLimits, at every plan."""
    asked: list[tuple[MatrixShape, ...]] = []
    relu = OPS["aten.relu.default"]
    run = relu.run

    def asking(x: LiveTensor, out: LiveTensor) -> Generator[Any, Any, None]:
        limits = yield GetLimits()
        asked.append(limits.matrices_of(x.dtype))
        yield from run(x, out)

    monkeypatch.setitem(OPS, "aten.relu.default", replace(relu, run=asking))
    chain = Chain()
    x = chain.input((4, 8))
    graph = chain.graph(chain.node("aten.relu.default", x, chain.tensor((4, 8))))
    plans = [compile(graph, replace(WITH, half_inputs=rounds)) for rounds in (False, True)]
    assert plans[0] != plans[1], "a plan is another where rounding is permitted"
    for plan, wanted in zip(plans, ((), (HALVES,)), strict=True):
        asked.clear()
        live = PlanState(plan)
        live.begin()
        live.walk(0, len(graph.nodes), lambda node, request: 0)
        assert asked
        assert set(asked) == {wanted}


@pytest.mark.parametrize(
    ("asked", "limits", "kind"),
    [
        ("auto", WITH, "float16"),
        ("auto", Limits(), "float32"),
        ("float16", Limits(), "float16"),
        ("int8", WITH, "int8"),
    ],
)
def test_every_way_to_a_model_has_the_kind_and_its_limits(asked: str, limits: Limits, kind: str) -> None:
    """The kind that saved KV caches carry is what was chosen, not `auto`, which is another thing on another device."""
    device = PaperDevice(limits)
    wanted = replace(limits, half_inputs=kind == "float16")
    for model in (
        LanguageModel.load(shipped_model(), device=device, activations=asked),
        Subject(shape="tiny", activations=asked).open([Work(prompt=4)], device),
    ):
        assert (model.activations, model.fork().activations) == (kind, kind)
        assert model.engine.executor.plan.limits == wanted
    runner, _ = load_runner(shipped_model(), device=device, activations=asked, sequences=2, cache_bytes=1 << 20)
    assert (runner.origin.activations, runner.executor.plan.limits) == (kind, wanted)
    assert capacity_of_shape("tiny", device, sequences=2, context=64, activations=asked)._limits == wanted


def test_auto_is_the_default_of_every_way_to_a_language_model() -> None:
    """A server that starts in float32 decodes 64 sequences at less than half of its speed; a program rounds nothing."""
    device = PaperDevice(WITH)
    folder = shipped_model()
    model = LanguageModel.load(folder, device=device)
    assert model.activations == load_text(folder, device=device)[0].activations == "float16"
    engine = open_engine(folder, device=device, sequences=2, cache_bytes=1 << 20)
    assert engine.facts.activations == FleetOptions().activations.replace("auto", "float16") == "float16"
    asyncio.run(engine.close())
    assert capacity_of_shape("tiny", device, sequences=2, context=64)._limits.half_inputs
    assert CompileTarget(device).activations == "float32"


@pytest.mark.parametrize("line", [["serve"], ["perplexity", "m", "t"], ["scale"], ["generate"], ["chat"], ["bench"]])
def test_auto_is_the_default_of_every_command_of_language_models(line: list[str]) -> None:
    assert _parser().parse_args(line).activations == "auto"


def test_float16_plans_as_float32_without_matrix_units() -> None:
    """Kernel for kernel: it permits rounding, and nothing rounds."""
    texts = []
    for kind in ("float32", "float16"):
        model = LanguageModel.load(shipped_model(), device=PaperDevice(), activations=kind)
        texts.append(sorted(variant.source for variant in model.engine.executor.plan.kernels))
    assert texts[0] == texts[1]
