"""Live sizes of zero: wherever torch has an answer we have the same one, and the graph is right afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.backends import open_device
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.ops.cases import CASES
from tests.support.graphs import In, OpCase, assert_close, build, flat_specs


def at_zero(case: OpCase) -> tuple[list[Any], Any] | None:
    """The inputs at size zero and torch's answer; None where the case or torch has none."""
    generator = np.random.default_rng(0)
    try:
        drawn = [spec.draw(generator) if isinstance(spec, In) else spec.value for spec in flat_specs(case.args_at(0))]
        golden = case.golden(*(torch.from_numpy(each) for each in drawn if isinstance(each, np.ndarray)), 0)
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError):
        return None
    ranks = [value.rank for value in build(case, max(case.sizes)).outputs]
    answers = golden if isinstance(golden, (tuple, list)) else (golden,)
    # A rank is settled at export; a case whose rank follows its size cannot go to zero.
    return (drawn, golden) if ranks == [answer.ndim for answer in answers] else None


FIRST = {(case.op, case.form, "float16" in case.name): case for case in reversed(CASES)}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow if form or half else (), id=case.name)
        for (_, form, half), case in FIRST.items()
    ],
)
def test_zero(case: OpCase) -> None:
    found = at_zero(case)
    if found is None:
        return  # torch raises, or the case itself has no size zero
    device = open_device()
    executor = Executor(compile(build(case, max(case.sizes)), device.limits), device)
    drawn, golden = found
    expected = golden if isinstance(golden, (tuple, list)) else (golden,)
    for _ in range(2):
        executor.poison()
        for position, (got, want) in enumerate(zip(executor.execute(drawn), expected, strict=True)):
            assert_close(got, want, case, f"{case.name} at 0, output {position}")
        small = [
            spec.draw(np.random.default_rng(1)) if isinstance(spec, In) else spec.value
            for spec in flat_specs(case.args_at(3))
        ]
        if 3 in case.sizes:
            answer = case.golden(*(torch.from_numpy(each) for each in small if isinstance(each, np.ndarray)), 3)
            wanted = answer if isinstance(answer, (tuple, list)) else (answer,)
            for got, want in zip(executor.execute(small), wanted, strict=True):
                assert_close(got, want, case, f"{case.name} at 3 after 0")
