"""Outputs come in the order of the file, each with a shape of its own; an equal count of elements tells nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from liveshape.runtime import Runtime
from tests.models.test_attention import recorded_inputs
from tests.models.test_catalogue import assert_within, load
from tests.models.test_quantized import upstream_linear
from tests.support.catalogue import dynamic_shape_files, generated
from tests.support.exporting import cached, lower

SUPPRESSED = ("direct_final_q4", "q4_then_add", "unrelated_then_final_q4")


def suppression_files() -> Path:
    return generated("output_suppression", lambda out: upstream_linear.export_output_suppression_models(str(out)))


@pytest.mark.parametrize("name", SUPPRESSED)
def test_an_output_that_is_not_wanted_changes_no_other(name: str) -> None:
    """Files in which ExecuTorch plans no memory for outputs, so that a caller may leave one out."""
    pte = suppression_files() / f"{name}.pte"
    certificate = json.loads(pte.with_suffix(".output_suppression.json").read_text())
    upstream_linear._verify_output_suppression_certificate(certificate, pte.read_bytes())
    executor = load(pte)
    given = [np.fromfile(pte.with_name("input.bin"), "<f4").reshape(1, -1)]
    goldens = [np.fromfile(path, "<f4")[None] for path in sorted(pte.parent.glob(f"{name}.output?.golden.bin"))]
    assert len(goldens) == len(executor.graph.outputs) == len(certificate["method_output_nodes"])
    every = tuple(range(len(goldens)))
    for wanted in (every, *((place,) for place in every), (), every[::-1], every):
        executor.poison()
        got = executor.start(given, wanted).result()
        for place, output in zip(wanted, got, strict=True):
            assert_within(output, goldens[place], 1e-3, 1e-3, f"output {place} of {wanted}")


@pytest.mark.parametrize("kind", ["_DuplicateFinalQ4", "_Q4ThenPortableSum"])
def test_outputs_that_the_other_backend_cannot_leave_out(kind: str) -> None:
    """One tensor given twice, and a result that a portable operator goes on with."""
    model = getattr(upstream_linear, kind)()
    x = upstream_linear._ramp_input(1, upstream_linear.OUTPUT_SUPPRESSION_K)
    executor = load(cached(f"outputs{kind}", kind, lambda: lower(model, (x,))))
    count = 2 if kind == "_DuplicateFinalQ4" else 1
    golden = upstream_linear._fp64_golden(model.q4, x)
    for wanted in (range(count), [count - 1], range(count)):
        executor.poison()
        outputs = executor.start([x.numpy()], wanted).result()
        assert len(outputs) == len(wanted)
        for got in outputs:
            assert_within(got, golden if count == 2 else golden.sum(), 1e-3, 1e-3, f"{kind}, {wanted}")


@pytest.mark.parametrize(("family", "atol"), [("dyn_sdpa", 2e-3), ("combined_routes", 1e-2)])
def test_an_output_is_found_by_its_full_shape(family: str, atol: float) -> None:
    """At 16 rows of 8 heads an attention has as many elements as each of its caches, 64 rows of 2 heads."""
    ((name, fixture),) = dynamic_shape_files([family]).items()
    method = Runtime.get().load_program(fixture.pte).load_method("forward")
    bounds = [info.bounds for info in method.inputs]
    for rows in (16, 64, 1, 16):
        given = recorded_inputs(fixture.pte, bounds, rows)
        queries, cache = given[-5].shape, given[-1].shape
        outputs = method.execute(given)
        assert [output.shape for output in outputs] == [cache, cache, queries]
        assert rows != 16 or len({output.size for output in outputs}) == 1
        (found,) = (output for output in outputs if output.shape == queries)
        golden = np.fromfile(fixture.pte.with_suffix(f".S{rows}.golden.bin"), "<f4").reshape(queries)
        assert_within(found, golden, atol, 0.0, f"{name} at {rows}")


class Shapes(nn.Module):
    """Outputs that all have as many elements, some also the same shape at 4 or at 12 rows."""

    def forward(self, x: torch.Tensor) -> Any:
        y, rows = torch.relu(x), x.shape[0]
        return y, y.reshape(rows * 3, 4), y.t().clone(), y.reshape(rows, 2, 6), y.unsqueeze(0), y * 2


def test_outputs_of_as_many_elements() -> None:
    bound, model = 24, Shapes().eval()
    size = torch.export.Dim("S", min=1, max=bound)
    path = cached("outputs_of_as_many_elements", Shapes, lambda: lower(model, (torch.randn(bound, 12),), ({0: size},)))
    executor = load(path)
    for rows in (bound, 1, 12, 4, 2, 3, 23, 4, 12):
        x = torch.randn(rows, 12, generator=torch.Generator().manual_seed(rows))
        expected = [output.numpy() for output in model(x)]
        executor.poison()
        for got, golden in zip(executor.execute([x.numpy()]), expected, strict=True):
            np.testing.assert_array_equal(got, golden, strict=True, err_msg=f"{rows} rows")
        for place, golden in enumerate(expected):
            executor.poison()
            (got,) = executor.start([x.numpy()], [place]).result()
            np.testing.assert_array_equal(got, golden, strict=True, err_msg=f"{rows} rows, output {place}")
