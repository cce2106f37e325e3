"""Every kernel of attention stores an expression of its result: what is behind attention costs no dispatch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.lower.lowering import optimized, simplified
from tests.matrices.opened import kernels_of
from tests.support import attention_chains, attention_spellings
from tests.support.attention_chains import CALLS, HEADS, Spelled, drawn
from tests.support.attention_spellings import SPELLINGS, golden
from tests.support.chains import executor_of

WAYS: dict[str, dict[str, Any]] = {
    "lane_rows": {},
    "tiled": {"max_cooperating_threads": 256, "lanes": 0, "subgroup": 0, "max_invocations": 128},
    "few_rows": {"max_cooperating_threads": 256, "lanes": 0, "one_order": True, "subgroup": 0},
    "few_rows_subgroups": {"max_cooperating_threads": 256, "lanes": 0, "subgroup": 8, "one_order": True},
}
CASES = {"eager with grouped heads": "float32", "sdpa of odd heads": "float32", "eager in halves": "float16"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_an_expression_of_attention_is_stored_instead(name: str, way: str) -> None:
    """tanh(attention * y) + z, where z is repeated for every row."""
    case = SPELLINGS[name]
    chain = Spelled(case)
    width = HEADS * case.size
    out = case.write(chain)
    y, z = chain.input(out.max_shape, case.floats), chain.input((width,), case.floats)
    product = chain.node("aten.mul.Tensor", out, y, chain.tensor(out.max_shape, case.floats))
    bent = chain.node("aten.tanh.default", product, chain.tensor(out.max_shape, case.floats))
    graph = chain.graph(chain.node("aten.add.Tensor", bent, z, 1, chain.tensor(out.max_shape, case.floats)))
    limits = replace(open_device().limits, **WAYS[way])
    device = open_device(limits=limits)
    fused = optimized(simplified(graph, limits), limits)
    assert [node.name for node in fused.nodes if not node.alias].count("liveshape.composed") == 1
    assert not [node.name for node in fused.nodes if node.name.startswith("aten") and not node.alias]
    executor = executor_of(fused, device)
    generator = np.random.default_rng(3)
    tolerance = 4e-3 if case.floats == "float16" else 2e-5
    for batch, rows, keys in (*CALLS, *reversed(CALLS)):
        inputs = drawn(case, generator, batch, rows, keys)
        more = [generator.standard_normal(shape).astype(case.floats) for shape in ((batch, rows, width), (width,))]
        executor.poison()
        wanted = np.tanh(golden(case, inputs[:3], inputs[3] if case.mask else None) * more[0]) + more[1]
        (result,) = executor.execute([*inputs, *more])
        np.testing.assert_allclose(result, wanted, tolerance, tolerance, err_msg=f"{(batch, rows, keys)}")
    assert any(each.startswith(f"attention/{way} + ") for each in kernels_of(device)), kernels_of(device)
    assert not [each for each in kernels_of(device) if each.startswith(("elementwise", "pointwise"))]


def test_splits_of_the_context_are_combined_into_an_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workgroups share a long context: what combines their sums stores the expression."""
    for module in (attention_chains, attention_spellings):
        monkeypatch.setattr(module, "ROWS", 40)
        monkeypatch.setattr(module, "KEYS", 700)
    case = SPELLINGS["eager"]
    chain = Spelled(case)
    out = case.write(chain)
    graph = chain.graph(chain.node("aten.tanh.default", out, chain.tensor(out.max_shape)))
    limits = replace(open_device().limits, **WAYS["tiled"])
    device = open_device(limits=limits)
    executor = executor_of(optimized(simplified(graph, limits), limits), device)
    generator = np.random.default_rng(0)
    for batch, rows, keys in ((3, 40, 700), (1, 3, 300), (2, 17, 29), (3, 40, 700)):
        inputs = drawn(case, generator, batch, rows, keys)
        executor.poison()
        wanted = np.tanh(golden(case, inputs, None))
        np.testing.assert_allclose(executor.execute(inputs)[0], wanted, 2e-5, 2e-5, err_msg=f"{(batch, rows, keys)}")
    assert any(each.startswith("attention/combine_splits + ") for each in kernels_of(device)), kernels_of(device)
