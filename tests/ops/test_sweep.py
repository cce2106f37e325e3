"""Every operator at every live size, on one graph built at the bound, against torch."""

from __future__ import annotations

import pytest

from tests.ops.cases import CASES
from tests.support.graphs import OpCase, sweep


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sweep(case: OpCase) -> None:
    sweep(case)
