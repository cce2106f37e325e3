"""Written meanings beside torch's and ExecuTorch's own: every operator case that has one, without a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from liveshape.check.differences import difference
from liveshape.check.meanings import FAMILIES, MEANINGS
from liveshape.check.meanings.pointwise_meanings import NUMPY_FUNCTIONS
from liveshape.check.references import expected
from liveshape.graph import Tensor, Value
from liveshape.ops import OPS
from liveshape.run.arrays import as_array
from tests.ops.cases import CASES
from tests.support.graphs import In, OpCase, build, flat_specs

TOLERANCE = 1e-5
BETWEEN = " between"  # layers on rows that a rewrite quantized: no file has them
HAVE_ONE = [case for case in CASES if case.op in MEANINGS and not case.name.endswith(BETWEEN)]


def compared(case: OpCase, size: int, tolerance: float = TOLERANCE) -> int:
    """How many results agree with the golden ones."""
    graph = build(case, max(case.sizes))
    node, random = graph.nodes[0], np.random.default_rng(size)
    specs = flat_specs(case.args_at(size))
    given = [spec.draw(random) if isinstance(spec, In) else spec.value for spec in specs]
    known: dict[Value, Any] = dict(zip(graph.inputs, given, strict=True))
    known |= {tensor: as_array(tensor) for tensor in graph.tensors if tensor.constant is not None}
    tensors = [torch.from_numpy(np.array(each)) for each in given if isinstance(each, np.ndarray)]
    golden = case.golden(*tensors, size)
    golden = golden if isinstance(golden, (tuple, list)) else (golden,)
    # Views take the shape that the plan gives them.
    made = expected(node, known, dict(zip(graph.outputs, (each.shape for each in golden), strict=True)))
    count = 0
    for value, want in zip(graph.outputs, golden, strict=True):
        if value in made and isinstance(value, Tensor):
            found = difference(made[value], want.detach().numpy(), value.dtype, tolerance)
            assert found is None, (case.name, size, value.name, str(found))
            count += 1
    return count


@pytest.mark.parametrize("case", HAVE_ONE, ids=lambda case: case.name)
def test_a_meaning_is_that_of_torch(case: OpCase) -> None:
    sizes = sorted({size for size in case.sizes if size > 1}) or [max(case.sizes)]
    counts = [compared(case, size) for size in dict.fromkeys((sizes[0], sizes[len(sizes) // 2]))]
    assert all(counts) or not build(case, max(case.sizes)).outputs


def test_every_meaning_is_of_an_operator() -> None:
    assert MEANINGS.keys() <= OPS.keys()
    assert len({family.__name__ for family in FAMILIES}) == len(FAMILIES)


def test_functions_that_numpy_lacks_are_those_of_torch() -> None:
    places = [-np.inf, -3.5, -2.0, -1.0, -0.75, -1e-3, 0.0, 1e-3, 0.4, 1.0, 2.5, 11.0, 80.0, np.inf, np.nan]
    x = torch.tensor(places, dtype=torch.float64)
    for name in ("erf", "erfc", "erfinv", "lgamma", "digamma", "logit"):
        with np.errstate(all="ignore"):
            got, want = getattr(NUMPY_FUNCTIONS, name)(x.numpy()), getattr(torch, name)(x)
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-9, err_msg=name)
