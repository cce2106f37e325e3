"""Training operators and rotary tables of rank 3 at random shapes, groups and dtypes, against torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ops.cases import rotary, training
from tests.support.graphs import OpCase, sweep

DTYPES = st.sampled_from(["float32", "float16"])


@st.composite
def cases(draw: Any) -> OpCase:
    """One case of any of the operators, live in its rows."""
    dtype, width, columns = draw(DTYPES), draw(st.integers(1, 40)), draw(st.integers(1, 40))
    group = draw(st.integers(1, 20))
    batch = draw(st.integers(1, 3))
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return training._fused_ce(dtype, lambda s: (s, width), float(columns))
    if kind == 1:
        return training._adamw(dtype, lambda s: (s, width), columns / 100, group)
    if kind == 2:
        return training._linear_dw(dtype, lambda s: (batch, s), columns, width)
    if kind == 3:
        return training._backward(dtype, 2 * width, columns, group, lambda s: (batch, s))
    if kind == 4:
        return training._requant(dtype, lambda s: (s, width), group)
    rotated = 2 * draw(st.integers(1, width))
    return rotary._heads_first(dtype, dtype, batch, draw(st.sampled_from([1, batch])), 2 * width, rotated, group)


def check(case: OpCase) -> None:
    sweep(case, rounds=1)


def test_a_few() -> None:
    settings(max_examples=5, deadline=None, derandomize=True)(given(cases())(check))()


@pytest.mark.slow
def test_many() -> None:
    patient = [HealthCheck.too_slow]
    settings(max_examples=200, deadline=None, suppress_health_check=patient)(given(cases())(check))()
