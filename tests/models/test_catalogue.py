"""ExecuTorch's own operator catalogue, all of it, at its own tolerances."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.backends import open_device
from liveshape.formats import open_program
from liveshape.lower.lowering import lower
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.catalogue import case_files, cases, dynamic_module, dynamic_shape_files, first_of_some_suites


def load(path: Any) -> Executor:
    device = open_device()
    with open_program(path) as file:
        return Executor(compile(lower(file, "forward", {}, device.limits), device.limits), device)


def assert_within(got: np.ndarray, golden: np.ndarray, atol: float, rtol: float, where: str) -> None:
    """The rule of ExecuTorch's own driver: absolute or relative error, integers and booleans exact."""
    assert got.shape == golden.shape, where
    if golden.dtype.kind in "biu":
        np.testing.assert_array_equal(got, golden, err_msg=where)
        return
    wide, exact = got.astype(np.float64), golden.astype(np.float64)
    error = np.abs(wide - exact)
    right = (error <= atol) | (error <= rtol * np.abs(exact)) | (wide == exact) | (np.isnan(wide) & np.isnan(exact))
    assert right.all(), f"{where}: {(~right).sum()} of {right.size} elements are off, by {error[~right].max()} at most"


def slowly(names: list[Any], fast: Collection[Any]) -> list[Any]:
    """Names, or rows of them, as parameters that are slow unless they are among the fast ones."""
    rows = {name: name if isinstance(name, tuple) else (name,) for name in names}
    return [
        pytest.param(*row, marks=() if name in fast else pytest.mark.slow, id="-".join(row))
        for name, row in rows.items()
    ]


CASES = [*cases(), *cases(heavy=True)]
FAST = first_of_some_suites()


def test_many_suites_have_a_fast_case() -> None:
    """One of a suite, of about a quarter of the suites, and the whole catalogue is collected."""
    suites = {suite for suite, _ in CASES}
    assert len(FAST) == len({suite for suite, _ in FAST} & suites)
    assert len(suites) / 6 < len(FAST) < len(suites) < len(CASES)


@pytest.mark.parametrize(("suite", "case"), slowly(CASES, FAST))
def test_case(suite: str, case: str) -> None:
    files = case_files(suite, case)
    executor = load(files.pte)
    executor.poison()
    results = executor.execute(list(files.inputs))
    assert len(results) == len(files.goldens)
    for position, (got, golden) in enumerate(zip(results, files.goldens, strict=True)):
        assert_within(got, golden, files.atol, files.rtol, f"{suite}.{case}, output {position}")


# Cases A to H of ExecuTorch's dynamic-shape oracle, with M and N, at the tolerance of its native test.
FIXTURES = ("dyn_rms", "dyn_rms_chain", "dyn_residual", "dyn_rmsmul", "dyn_sigmoid", "static_rms", "dyn_select")


@pytest.mark.parametrize(
    "family", slowly([*FIXTURES, "dyn_fp32_linear"], ("dyn_rms_chain", "dyn_select", "dyn_fp32_linear"))
)
def test_dynamic_shape_oracle(family: str) -> None:
    fixtures = dynamic_shape_files([family])
    assert fixtures
    for name, fixture in fixtures.items():
        executor = load(fixture.pte)
        (bound,) = (value.max_shape for value in executor.graph.inputs)
        device = executor.device
        made = device.counters.buffers, device.counters.pipelines
        sizes = list(fixture.live)
        assert sizes
        for size in [*sizes, *reversed(sizes), *sizes[1:]]:
            given, golden = fixture.live[size]
            live = list(bound)
            live[live.index(max(sizes))] = size
            executor.poison()
            (got,) = executor.execute([given.reshape(live)])
            assert_within(got, golden.reshape(got.shape), 1e-3, 0.0, f"{name} at {size}")
        assert made == (device.counters.buffers, device.counters.pipelines)


def test_dynamic_expand_is_served_where_the_other_backend_refuses_it() -> None:
    for name, fixture in dynamic_shape_files(["dyn_expand_copy"]).items():
        executor = load(fixture.pte)
        for size in (8, 1, 5, 2, 7):
            x = np.random.default_rng(size).standard_normal((1, size)).astype(np.float32)
            executor.poison()
            (got,) = executor.execute([x])
            np.testing.assert_array_equal(got, np.broadcast_to(x, (4, size)), err_msg=f"{name} at {size}")


@pytest.mark.slow
def test_more_workgroups_than_one_dimension_holds() -> None:
    """An operator with a live size around what one dimension of a grid reaches at four elements a thread."""
    (fixture,) = dynamic_shape_files(["dyn_gelu"]).values()
    executor = load(fixture.pte)
    gelu = dynamic_module().GeluModule("none")
    (bound,) = (value.max_shape[0] for value in executor.graph.inputs)
    for size in (bound, 1024, bound - 1, bound):
        x = torch.linspace(-6, 6, size)
        executor.poison()
        (got,) = executor.execute([x.numpy()])
        assert_within(got, gelu(x).numpy(), 1e-4, 1e-3, f"{size} elements")
