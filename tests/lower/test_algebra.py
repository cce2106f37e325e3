"""A driver that calculates as if numbers were real cancels nothing across operators that were fused: the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Tensor
from liveshape.lower.lowering import optimized, simplified
from tests.support.chains import Chain, executor_of

MAX = 23
SIZES = (7, 23, 1, 0, 12)


class Ops:
    """Operators of a chain on float32 of one shape."""

    def __init__(self, chain: Chain, shape: tuple[int, ...]) -> None:
        self.chain, self.shape = chain, shape

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        operator = f"aten.{name}.{'Tensor' if name in ('add', 'sub', 'mul', 'div') else 'default'}"
        more = (1,) if name in ("add", "sub") else ()
        return lambda *args: self.chain.node(operator, *args, *more, self.chain.tensor(self.shape))


FORMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "(a + b) - a": lambda o, a, b: o.sub(o.add(a, b), a),
    "(a + b) - b": lambda o, a, b: o.sub(o.add(a, b), b),
    "-a + (a + b)": lambda o, a, b: o.add(o.neg(a), o.add(a, b)),
    "a * (a - a)": lambda o, a, b: o.mul(a, o.sub(a, a)),
    "a * b + a * a": lambda o, a, b: o.add(o.mul(a, b), o.mul(a, a)),
    "sqrt(a) * sqrt(a)": lambda o, a, b: o.mul(o.sqrt(a), o.sqrt(a)),
    "1 / (1 / a)": lambda o, a, b: o.reciprocal(o.reciprocal(a)),
}
# What computes the first operand, and whether what reads the result loads the expression instead of it.
PLACES = ("alone", "epilogue", "prologue")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_cancelled(form: str, place: str) -> None:
    chain = Chain()
    a, b = chain.input((MAX, 8)), chain.input((MAX, 8))
    if place == "epilogue":
        weight = chain.constant(np.eye(8, dtype=np.float32))
        a = chain.node("aten.linear.default", a, weight, None, chain.tensor((MAX, 8)))
    result = FORMS[form](Ops(chain, (MAX, 8)), a, b)
    if place == "prologue":
        result = chain.node("aten.amax.default", result, (1,), True, chain.tensor((MAX, 1)))
    graph, device = chain.graph(result), open_device()
    fused = optimized(simplified(graph, device.limits), device.limits)
    assert len(fused.nodes) == 1
    both = executor_of(fused, device), executor_of(graph, device)
    random = np.random.default_rng(0)
    for rows in SIZES:
        given = [random.uniform(-100, 100, (rows, 8)), random.uniform(-1, 1, (rows, 8))]
        given = [each.astype(np.float32) for each in given]
        if rows and place != "epilogue":
            given[0][0, :5] = -0.0, np.inf, -np.inf, np.nan, 0.0
        results = []
        for executor in both:
            executor.poison()
            results.append(executor.execute(given)[0])
        got, want = results
        assert got.shape == want.shape
        assert (np.isnan(got) == np.isnan(want)).all()
        assert np.where(np.isnan(got), 0, got).tobytes() == np.where(np.isnan(want), 0, want).tobytes()
    for executor in both:
        executor.close()
