"""Which backend a program is given: matrix units are no reason for one that would not use them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from liveshape.device import backends
from liveshape.graph.limits import MatrixShape, MatrixUse
from liveshape.program import matrix_use as matrix_uses
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import open_file
from liveshape.program.matrix_use import matrix_use
from liveshape.program.program import load_program
from liveshape.runtime import Runtime
from liveshape.shipped import shipped_model
from tests.support.paper import PaperDevice

RECORDED = Path(__file__).parents[1] / "recorded" / "exports"
# By what is multiplied: float16 as a delegate and as operators of the file have it, activations of int8 per token, of a
# quantized network; float32 with weights of 4 and of 8 bits, and without.
MULTIPLIED = {
    "addmm_f16": True,
    "convolution.half": True,
    "quantized_8da4w": True,
    "pt2e_dense_static": True,
    "pt2e_layers_dynamic_portable": True,
    "export.llama_4w": False,
    "attention.cached_layers": False,
    "convolution.image": False,
}


def recorded(name: str) -> Path:
    (found,) = RECORDED.glob(f"{name}-*.pte")
    return found


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backends that were opened, where a GPU has matrix units and Dawn is installed."""
    names: list[str] = []
    paper = PaperDevice()
    adapter = replace(paper.adapter, matrices=(MatrixShape("float16", "float32", 16, 16, 16),))
    for name in ("LIVESHAPE_BACKEND", "LIVESHAPE_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(backends, "_dawn_adapters", lambda: [adapter])
    monkeypatch.setattr(backends, "_open", {})

    def offers(name: str) -> list[Any]:
        def open(limits: object) -> PaperDevice:
            names.append(name)
            return PaperDevice()

        return [backends.Offer(adapter, open)]

    monkeypatch.setattr(backends, "_offers", offers)
    return names


@pytest.mark.parametrize(("name", "expected"), MULTIPLIED.items())
def test_float16_and_int8_values_are_found_and_weights_are_not(name: str, expected: bool) -> None:
    with open_file(recorded(name)) as file:
        assert matrix_use(file) is (MatrixUse.PRODUCTS if expected else MatrixUse.NOTHING)


@pytest.mark.parametrize(("name", "expected"), MULTIPLIED.items())
def test_a_program_is_given_to_dawn_if_it_takes_matrices(name: str, expected: bool, opened: list[str]) -> None:
    with load_program(CompileTarget(), recorded(name)) as program:
        program.load_method("forward")
    assert opened == ["dawn" if expected else "wgpu"]


@pytest.mark.parametrize(("fast", "deterministic"), [(True, False), (True, True), (False, False)])
def test_large_products_of_float32_are_given_to_dawn_where_splitting_them_pays(
    fast: bool, deterministic: bool, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_file(recorded("linears")) as file:
        assert matrix_uses.matrix_use(file) is MatrixUse.NOTHING
        monkeypatch.setattr(matrix_uses, "_LARGE", 1)
        assert matrix_uses.matrix_use(file) is MatrixUse.FLOAT32
    (adapter,) = backends._dawn_adapters()
    monkeypatch.setattr(backends, "_dawn_adapters", lambda: [replace(adapter, fast_matrices=fast)])
    with load_program(CompileTarget(deterministic=deterministic), recorded("linears")) as program:
        program.load_method("forward")
    assert opened == ["dawn" if fast and not deterministic else "wgpu"]


@pytest.mark.parametrize(
    ("activations", "expected"), [("float32", "wgpu"), ("float16", "dawn"), ("auto", "dawn"), ("int8", "wgpu")]
)
def test_the_kind_of_activations_decides_for_a_float32_program(
    activations: str, expected: str, opened: list[str]
) -> None:
    target = CompileTarget(activations=activations)
    with load_program(target, next(shipped_model().glob("*.pte"))):
        assert target.device.name == "paper"
    assert opened == [expected]


def test_a_backend_that_was_named_is_taken(opened: list[str]) -> None:
    with load_program(CompileTarget(backend="dawn"), recorded("convolution.image")) as program:
        program.load_method("forward")
    assert opened == ["dawn"]


def test_a_program_that_was_closed_decides_nothing(opened: list[str]) -> None:
    target = CompileTarget()
    load_program(target, recorded("convolution.image")).close()
    assert target.device.name == "paper"
    assert opened == ["dawn"]


def test_each_program_of_a_runtime_has_the_backend_that_is_faster_for_it(opened: list[str]) -> None:
    runtime = Runtime()
    for name in ("convolution.image", "addmm_f16"):
        runtime.load_program(recorded(name)).load_method("forward")
    assert opened == ["wgpu", "dawn"]


def test_a_delegate_that_cannot_be_read_is_left_to_lowering() -> None:
    with open_file(next(shipped_model().glob("*.pte"))) as file:
        for plan in file.plans:
            for delegate in plan.delegates:
                object.__setattr__(delegate, "blob", memoryview(b"no graph"))
        assert matrix_use(file) is MatrixUse.NOTHING


def test_a_file_that_another_thread_closes_decides_nothing() -> None:
    file = open_file(recorded("export.llama_4w"))
    for plan in file.plans:
        for delegate in plan.delegates:
            delegate.blob.release()
    assert matrix_use(file) is MatrixUse.NOTHING
