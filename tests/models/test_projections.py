"""4-bit linears that share an input, as ExecuTorch exports them: queries, keys and values, and gated linear units.

A row of the result depends on no other row, so the goldens of many rows are those of every smaller live size too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.models.test_catalogue import assert_within, load, slowly
from tests.models.test_quantized import upstream_linear, write_large_dynamic_linears
from tests.support.catalogue import dynamic_module, dynamic_shape_files, generated

INPUTS = ("input", "up_input", "v_input")
OUTPUTS = ("golden", *(f"golden{number}" for number in range(4)), "q", "k", "v")
SMALL = (1, 2, 7, 31)


def recorded_rows(pte: Path, parts: tuple[str, ...]) -> dict[int, list[np.ndarray]]:
    """The matrices beside a fixture with these names, by their rows."""
    found: dict[int, list[np.ndarray]] = {}
    for part in parts:
        for path in pte.parent.glob(f"{pte.stem}.S*.{part}.bin"):
            rows = int(re.fullmatch(rf"{re.escape(pte.stem)}\.S(\d+)\.{part}\.bin", path.name)[1])
            found.setdefault(rows, []).append(np.fromfile(path, "<f4").reshape(rows, -1))
    return found


def run_rows(pte: Path, goldens: dict[int, list[np.ndarray]], atol: float, small: tuple[int, ...] = SMALL) -> None:
    """Every recorded size and the small ones, up and then down on one graph that allocates nothing."""
    inputs = recorded_rows(pte, INPUTS)
    assert inputs.keys() == goldens.keys()
    executor = load(pte)
    made = executor.device.counters.buffers, executor.device.counters.pipelines
    sizes = sorted({*inputs, *(size for size in small if size < max(inputs))})
    for size in [*sizes, *reversed(sizes)]:
        source = size if size in inputs else max(inputs)
        executor.poison()
        outputs = executor.execute([given[:size] for given in inputs[source]])
        for place, (got, golden) in enumerate(zip(outputs, goldens[source], strict=True)):
            assert got.shape[-2:] == golden[:size].shape
            assert_within(got.reshape(size, -1), golden[:size], atol, 0.0, f"{pte.stem} at {size}, output {place}")
    assert made == (executor.device.counters.buffers, executor.device.counters.pipelines)


def test_qkv_projection() -> None:
    pte = dynamic_shape_files(["dyn_qkv"])["qkv_routes"].pte
    run_rows(pte, recorded_rows(pte, OUTPUTS), 5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [pytest.param(False, marks=pytest.mark.slow), True])
def test_qkv_projection_of_few_columns(bias: bool) -> None:
    """The model of a real size with other widths, at the sizes that its exporter records up to 128 rows."""
    upstream = dynamic_module()
    name = f"dyn_qkv_narrow{'_bias' * bias}"
    sizes = [size for size in upstream.BK64_QKV_LIVE_M if size <= 128]

    def write(out: Path) -> None:
        model = upstream.Bk64Qkv(widths=(72, 40, 40), bias=bias)
        upstream._export_dynamic_bk64_qkv_case(str(out), name, model, sizes)

    pte = generated(f"qkv.{name}", write) / f"{name}.pte"
    run_rows(pte, recorded_rows(pte, OUTPUTS), 5e-3)


@pytest.mark.slow
def test_wide_qkv_projection() -> None:
    """It comes without goldens, so they are made from the weights that its exporter draws."""
    upstream = dynamic_module()
    pte = dynamic_shape_files(["dyn_qkv"])["qkv_bk64_routes"].pte
    widths = (upstream.QKV_NQ, upstream.QKV_NK, upstream.QKV_NV)
    depth, group = upstream.QKV_BK64_K, upstream.QKV_BK64_GROUP
    layers = [upstream_linear._make_quantized_model(depth, width, group, seed) for seed, width in enumerate(widths)]
    goldens = {}
    for rows in recorded_rows(pte, INPUTS):
        x = upstream._ramp((rows, depth))
        goldens[rows] = [1 / (1 + np.exp(-upstream_linear._fp64_golden(layer, x))) for layer in layers]
    run_rows(pte, goldens, 5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["", "_group32", "_bias", "_wrong_width", "_different_input"])
def test_qkv_projection_of_a_real_size(form: str) -> None:
    pte = generated("q4gsw.bk64", write_large_dynamic_linears, large=True) / f"dyn_qkv_bk64{form}.pte"
    run_rows(pte, recorded_rows(pte, OUTPUTS), 5e-3, () if form == "" else (1,))


def gated_units() -> dict[str, tuple[dict[str, Any], list[int]]]:
    """What its exporter of gated linear units asks for: the options of each module and the recorded sizes."""
    upstream = dynamic_module()
    with (
        mock.patch.object(upstream, "SwiGluModule", dict),
        mock.patch.object(upstream, "_export_swiglu_case") as export,
    ):
        upstream._export_dynamic_swiglu("")
    return {name: (options, sizes) for _, name, options, sizes in (call.args for call in export.call_args_list)}


UNITS = gated_units()
QUICK = {"dyn_swiglu_outer_reversed", "dyn_swiglu_graph_outputs"}  # one that fuses and one that must not


@pytest.mark.parametrize("name", slowly(list(UNITS), QUICK))
def test_gated_linear_unit(name: str) -> None:
    """Among them units whose parts the caller or another operator wants too, and one beside a query projection."""
    options, sizes = UNITS[name]

    def write(out: Path) -> None:
        upstream = dynamic_module()
        upstream._export_swiglu_case(str(out), name, upstream.SwiGluModule(**options), sizes)

    pte = generated(f"swiglu.{name}", write) / f"{name}.pte"
    run_rows(pte, recorded_rows(pte, OUTPUTS), 1e-2)
