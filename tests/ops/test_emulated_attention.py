"""Attention in tiles of matrices, against float64: matrix units are emulated in WGSL, 32 lanes at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.kernels import Variant
from liveshape.lower.fusion import fuse
from liveshape.lower.lowering import optimized, simplified
from liveshape.ops import attention_heuristics
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.matrices.masks import HIDDEN, check_masks
from tests.matrices.opened import kernels_of
from tests.ops.test_paged_attention import Form, check
from tests.support.attention_chains import Spelled, Spelling, drawn
from tests.support.attention_spellings import SPELLINGS, eager, golden, written
from tests.support.emulated_attention import emulate


# A compiler for CPUs takes long over the text of a tile: that of one mask, which the others share, is enough.
@pytest.mark.parametrize(
    "hidden",
    [pytest.param(each, id=name, marks=() if name == "least" else pytest.mark.slow) for name, each in HIDDEN.items()],
)
def test_masks(hidden: float, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = emulate(monkeypatch, open_device().limits)
    device = open_device(limits=limits)
    check_masks(device, limits, hidden)
    assert "attention/matrix_tiles" in kernels_of(device)


# Half of a matrix is zeros; queries, keys and values are columns of one tensor, and the last tiles have few rows.
@pytest.mark.slow
@pytest.mark.parametrize("floats", ["float32", "float16"])
def test_heads_of_half_a_matrix_along_strides(floats: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_heuristics, "FEW_LARGE_TILES", 0)
    limits = emulate(monkeypatch, open_device().limits)
    device = open_device(limits=limits)
    case = replace(SPELLINGS["one projection"], size=24, floats=floats)
    chain = Spelled(case)
    out = case.write(chain)
    graph = chain.graph(chain.node("aten.tanh.default", out, chain.tensor(out.max_shape)))
    executor = Executor(compile(optimized(simplified(graph, limits), limits), limits), device)
    generator = np.random.default_rng(0)
    for batch, rows in ((3, 21), (1, 20), (2, 17)):
        inputs = drawn(case, generator, batch, rows, rows)
        executor.poison()
        wanted = np.tanh(golden(case, inputs, None))
        np.testing.assert_allclose(executor.execute(inputs)[0], wanted, 4e-3, 4e-3)
    kernel = "attention/matrix_tiles + " if floats == "float32" else "attention/matrix_tiles+given + "
    assert any(name.startswith(kernel) for name in kernels_of(device))


# Scores that grow with the keys: sums are rescaled, of rows in one matrix of a subgroup and in two, the second of which
# has some rows, or none.
@pytest.mark.slow
@pytest.mark.parametrize("floats", ["float32", "float16"])
@pytest.mark.parametrize("row_blocks", [1, 2])
def test_sums_are_rescaled(floats: str, row_blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_heuristics, "FEW_LARGE_TILES", 0)
    monkeypatch.setattr(attention_heuristics, "TWO_BLOCKS_TIME", 0 if row_blocks == 2 else 9)
    limits = emulate(monkeypatch, open_device().limits)
    device = open_device(limits=limits)
    case = Spelling("", eager, key_heads=2, floats=floats, nan=True, size=32)
    _, graph = written(case)
    executor = Executor(compile(fuse(graph, limits), limits), device)
    for rows, keys in ((21, 13), (17, 7)):
        inputs = drawn(case, np.random.default_rng(rows), 1, rows, keys)
        inputs[1] *= np.linspace(0, 9, keys, dtype=floats)[None, :, None]
        executor.poison()
        np.testing.assert_allclose(executor.execute(inputs)[0], golden(case, inputs, None), 4e-3, 8e-3)
    chosen = {dict(each.constants)["ROW_BLOCKS"] for each in _variants(device, "attention/matrix_tiles")}
    assert chosen == {f"{row_blocks}u"}


def _variants(device: Device, kernel: str) -> list[Variant]:
    return [each for each in device._pipelines if each.kernel.name.startswith(kernel)]  # type: ignore[attr-defined]


class Rounded(Form):
    """Pages whose numbers are rounded to halves."""

    @property
    def tolerance(self) -> dict[str, float]:
        return {"atol": 4e-3, "rtol": 4e-3}


PAGES = [
    Rounded("pages of 5, window, sinks", (4, 2), 24, page=5, window=40, sinks="float32"),
    Rounded("halves, softcap", (4, 2), 32, dtype="float16", softcap=2.0),
]


@pytest.mark.slow
@pytest.mark.parametrize("form", PAGES, ids=lambda form: form.name)
def test_pages(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = emulate(monkeypatch, open_device().limits)
    device = open_device(limits=limits)
    # Lines of few rows would shuffle among 32 lanes, which nobody has here.
    kernels = check(form, device, (((0, 29),), ((40, 17), (0, 5), (280, 20)), ((7, 3),)))
    assert form.kernel("matrix_tiles") in kernels
