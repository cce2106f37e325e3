"""Every operator at every live size, on one graph built at the bound, against torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ops.cases import CASES
from tests.support.graphs import OpCase, sweep


def quick(cases: list[OpCase]) -> Iterator[str]:
    """An operator's cases of every `make test`: the first, the last, which has most arguments, and one in halves,
    which take the same ways as those of float32; of what runs other operators the first of each. `make test-all` has
    all of them."""
    for form in {(case.op, case.form): None for case in cases}:
        names = [case.name for case in cases if (case.op, case.form) == form]
        halves = [name for name in names if "float16" in name]
        full = [name for name in names if name not in halves]
        yield from {*full[:1]} if form[1] else {*full[:1], *full[-1:], *halves[:1]}


QUICK = set(quick(CASES))


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case.name in QUICK else pytest.mark.slow, id=case.name) for case in CASES]
)
def test_sweep(case: OpCase) -> None:
    sweep(case)
