"""References in numpy beside torch's answers, by every operator case that has one, without a device; and used without
torch."""

from __future__ import annotations

from collections import defaultdict

import pytest

from liveshape.check import references
from liveshape.check.meanings import MEANINGS
from liveshape.check.numpy_references import NUMPY, base_name
from liveshape.ops import OPS
from tests.check.test_meanings import compared
from tests.ops.cases import CASES
from tests.support.graphs import OpCase

BY_OPERATOR: dict[str, list[OpCase]] = defaultdict(list)
for each in CASES:
    has_one = base_name(each.op) in NUMPY or OPS[each.op].traits.pointwise is not None
    if has_one and each.op not in MEANINGS:
        BY_OPERATOR[each.op].append(each)
TOLERANCE = 3e-5  # of halves 40 times that, a last bit
WITHOUT_TORCH = "torch is not installed"


@pytest.fixture(autouse=True)
def _without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "find_on_host", lambda name: WITHOUT_TORCH)


@pytest.mark.parametrize("operator", BY_OPERATOR)
def test_numpy_gives_what_torch_gives(operator: str) -> None:
    for case in BY_OPERATOR[operator]:
        sizes = sorted({size for size in case.sizes if size > 1}) or [max(case.sizes)]
        for size in dict.fromkeys((sizes[0], sizes[len(sizes) // 2])):
            assert compared(case, size, TOLERANCE), case.name
