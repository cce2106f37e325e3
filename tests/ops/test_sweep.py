"""Every operator at every live size, on one graph built at the bound, against torch."""

from __future__ import annotations

import pytest

from tests.ops.cases import CASES
from tests.support.graphs import OpCase, sweep

# Of an operator's cases in halves, one is in `make test`: they take the same ways as those of float32.
HALVES = {case.op: case.name for case in reversed(CASES) if "float16" in case.name}
LATER = [case.name for case in CASES if "float16" in case.name and HALVES[case.op] != case.name]


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] if case.name in LATER else [], id=case.name) for case in CASES]
)
def test_sweep(case: OpCase) -> None:
    sweep(case)
