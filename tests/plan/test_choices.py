"""A graph under every choice gives the same results; planning it another way leaves nothing behind of the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.errors import PlanError
from liveshape.graph import Graph, Limits
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor
from tests.support.chains import Chain

RANDOM = np.random.default_rng(0)
X, Y = (RANDOM.standard_normal((8, 8)).astype(np.float32) for _ in range(2))


def views_of_what_is_written_again() -> tuple[Graph, list[Any], list[Any]]:
    """The view of a sum shares its memory, that of a product does not: nodes of both are alike in one plan only."""
    chain = Chain()
    x, y = chain.input((8, 8), static=True), chain.input((8, 8), static=True)

    def made(operator: str, *args: Any) -> Any:
        return chain.node(operator, *args, chain.tensor((8, 8)))

    total, product = made("aten.add.Tensor", x, y, 1), made("aten.mul.Tensor", x, y)
    one, other = made("aten.clone.default", total, None), made("aten.clone.default", product, None)
    outs = [made(f"aten.{name}", one, other) for name in ("maximum.default", "minimum.default", "fmod.Tensor")]
    chain.node("aten.sub.Tensor", x, y, 1, product)
    a, b = X + Y, X * Y
    return chain.graph(*outs, product), [X, Y], [np.maximum(a, b), np.minimum(a, b), np.fmod(a, b), X - Y]


def views_of_what_is_copied_over() -> tuple[Graph, list[Any], list[Any]]:
    chain = Chain()
    x, y = chain.input((8, 8)), chain.input((8, 8))

    def made(operator: str, *args: Any) -> Any:
        return chain.node(operator, *args, chain.tensor((8, 8)))

    total = made("aten.add.Tensor", x, y, 1)
    one = made("aten.clone.default", total, None)
    product = made("aten.mul.Tensor", x, y)
    other = made("aten.clone.default", product, None)
    chain.node("aten.copy_.default", product, x, False, product)
    outs = [made(f"aten.{name}.default", one, other) for name in ("maximum", "minimum", "atan2")]
    a, b = X + Y, X * Y
    return chain.graph(*outs, product), [X, Y], [np.maximum(a, b), np.minimum(a, b), np.arctan2(a, b), X]


def scratch_of_several_kinds() -> tuple[Graph, list[Any], list[Any]]:
    """Temporary memory of index_put, and conversions whose kernels depend on the kinds of what they read."""
    chain = Chain()
    x, rows, values = (
        chain.input((8, 8), static=True),
        chain.input((3,), "int64", static=True),
        chain.input((3, 8), static=True),
    )
    flags, halves = chain.input((8,), "bool", static=True), chain.input((8,), "float16", static=True)
    put = chain.node("aten.index_put.default", x, (rows,), values, False, chain.tensor((8, 8)))
    flat = chain.node("aten.view_copy.default", put, (64,), chain.tensor((64,)))
    joined = chain.node("aten.cat.default", (flags, halves), 0, chain.tensor((16,), "float16"))
    numbers = chain.node("aten::_to_copy.out", flags, None, None, chain.tensor((8,), "int32"))
    given = [X, np.array([1, 2, 3]), np.ones((3, 8), np.float32), np.array([1, 0] * 4, bool), np.ones(8, np.float16)]
    expected = X.copy()
    expected[[1, 2, 3]] = 1
    whole = np.array([1, 0] * 4, np.int32)
    return (
        chain.graph(flat, joined, numbers),
        given,
        [expected.reshape(-1), np.concatenate([whole, np.ones(8)]).astype(np.float16), whole],
    )


CHOICES = {
    "default": Choices(),
    "copies": Choices(aliasing=False),
    "alone": Choices(classes=False),
    "cold": Choices(warm=False),
    "plain": Choices(aliasing=False, classes=False, tracing=False, warm=False),
}


@pytest.mark.parametrize(
    "make", [views_of_what_is_written_again, views_of_what_is_copied_over, scratch_of_several_kinds]
)
@pytest.mark.parametrize("file_bytes", [0, 16], ids=["views", "less than views take"])
def test_results_are_the_same_under_every_choice(
    make: Callable[[], tuple[Graph, list[Any], list[Any]]], file_bytes: int
) -> None:
    """A file that plans less memory than aliased views take has its graph planned twice."""
    device = open_device()
    graph, given, expected = make()
    graph = replace(graph, file_bytes=file_bytes)
    # One graph after the other and all of them again: nothing of a plan stays on what was planned.
    for name in (*CHOICES, *CHOICES):
        executor = Executor(compile(graph, device.limits, CHOICES[name]), device)
        for _ in range(2):
            executor.poison()
            for place, (got, want) in enumerate(zip(executor.execute(given), expected, strict=True)):
                np.testing.assert_allclose(got, want, 1e-5, 1e-6, err_msg=f"{name}, output {place}")
        executor.close()


def test_views_are_given_up_where_the_file_needs_less() -> None:
    graph, _, _ = views_of_what_is_copied_over()
    shared, copied = (compile(graph, choices=Choices(aliasing=aliasing)).memory for aliasing in (True, False))
    assert (shared.aliased, copied.aliased) == (1, 0)
    least = min(shared.activation_bytes, copied.activation_bytes)
    assert compile(replace(graph, file_bytes=16)).memory.activation_bytes == least


def test_no_call_resumes_where_a_jump_passes() -> None:
    """Node 2 runs only if the jump is not taken, and a resumed call would run it in any case."""
    chain = Chain()
    x, out = chain.input((8, 8)), chain.tensor((8, 8))
    chain.node("aten.relu.default", x, out)
    chain.node("liveshape.jump_false", chain.scalar(given=True), 3, None)
    chain.node("aten.neg.default", x, out)
    chain.node("aten.exp.default", out, last := chain.tensor((8, 8)))
    graph = chain.graph(last)
    for point in (0, 1, 2):
        with pytest.raises(PlanError, match=rf"at node {point}: .* \(node 1\) jumps after it or over it"):
            compile(graph, Limits(), Choices(resume=(point,)))
    with pytest.raises(PlanError, match="it has 4 nodes"):
        compile(graph, Limits(), Choices(resume=(4,)))
    assert compile(graph, Limits(), Choices(resume=(3,))).choices.resume == (3,)
