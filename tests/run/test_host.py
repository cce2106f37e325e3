"""Operators without a kernel: the host computes them between two parts of a graph, at every live shape."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.errors import PlanError, ShapeError
from liveshape.formats.source import Source
from liveshape.graph import Graph, Tensor
from liveshape.llm.engine.engine import Engine
from liveshape.llm.language_model import LanguageModel, Origin
from liveshape.llm.program.token_graph import token_graph
from liveshape.run.host import find_on_host
from liveshape.tools.measuring.random_llamas import llama_graph
from tests.support.chains import Chain, executor_of
from tests.survival.lines import Lines
from tests.survival.subjects import TINY, Text

MAX = 43
SIZES = (MAX, 5, 1, 0, 7, 42, MAX)


def rows(size: int, width: int = 5, seed: int = 0) -> Any:
    return np.random.default_rng(seed + size).standard_normal((size, width)).astype(np.float32)


def places_of_positive() -> Graph:
    """Kernels on both sides of an operator whose result has a size that only the data knows."""
    chain = Chain()
    x = chain.input((MAX, 5))
    positive = chain.node("aten.relu.default", x, chain.tensor((MAX, 5)))
    places = chain.on_host("aten::nonzero.out", positive, chain.tensor((MAX * 5, 2), "int64"))
    squares = chain.node("aten.mul.Tensor", places, places, chain.tensor((MAX * 5, 2), "int64"))
    return chain.graph(squares, places, positive)


def check_places(got: list[Any], x: Any) -> None:
    places = np.argwhere(x > 0)
    np.testing.assert_array_equal(got[1], places)
    np.testing.assert_array_equal(got[0], places * places)
    np.testing.assert_array_equal(got[2], np.maximum(x, 0))


@pytest.mark.parametrize("choices", [{}, {"aliasing": False}, {"classes": False, "tracing": False}], ids=str)
def test_sizes_that_only_the_data_knows(choices: dict[str, bool]) -> None:
    executor = executor_of(places_of_positive(), open_device(), **choices)
    counters = executor.device.counters
    created = counters.buffers, counters.pipelines
    for size in SIZES:
        executor.poison()
        check_places(executor.execute([rows(size)]), rows(size))
    # The same shape with other data has another size.
    check_places(executor.execute([-rows(MAX)]), -rows(MAX))
    assert (counters.buffers, counters.pipelines) == created


def test_several_results_and_numbers() -> None:
    chain = Chain()
    x, weight = chain.input((MAX, 4)), chain.scalar(given=True, value=0.5)
    doubled = chain.node("aten.mul.Tensor", x, chain.constant(np.full((), 2, np.float32)), chain.tensor((MAX, 4)))
    parts = chain.tensor((MAX, 4)), chain.tensor((MAX, 4), "int32")
    chain.on_host("aten::frexp.Tensor_out", doubled, parts)
    between = chain.on_host("aten::lerp.Scalar_out", parts[0], x, weight, chain.tensor((MAX, 4)))
    same = chain.on_host("aten::equal", doubled, x, chain.scalar(value=False))
    executor = executor_of(chain.graph(parts[0], parts[1], between, same), open_device())
    for size, number in zip(SIZES, (0.5, 0.25, 1.0, 0.0, 0.5, 2.0, -1.0), strict=True):
        given = rows(size, 4)
        executor.poison()
        got = executor.execute([given, number])
        mantissa, exponent = np.frexp(given * 2)
        np.testing.assert_array_equal(got[0], mantissa)
        np.testing.assert_array_equal(got[1], exponent)
        np.testing.assert_allclose(got[2], mantissa + number * (given - mantissa), 1e-6, 1e-6)
        assert got[3] is (size == 0)


def test_a_state_that_the_host_changes_in_place() -> None:
    chain = Chain()
    x = chain.input((4,), static=True)
    state = chain.constant(np.zeros(4, np.float32))
    chain.on_host("aten::lerp_.Scalar", state, x, 0.5, state)
    seen = chain.node("aten.relu.default", state, chain.tensor((4,)))
    executor = executor_of(chain.graph(seen), open_device())
    expected = np.zeros(4, np.float32)
    for turn in range(4):
        given = np.full(4, turn + 1, np.float32)
        expected += (given - expected) / 2
        executor.poison()
        np.testing.assert_array_equal(executor.execute([given])[0], expected)
        np.testing.assert_array_equal(executor.state(state), expected)


def test_what_the_caller_gave_is_never_changed() -> None:
    chain = Chain()
    x = chain.input((5,))
    chain.on_host("aten::neg_", x, x)
    executor = executor_of(chain.graph(x), open_device())
    given = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(executor.execute([given])[0], -np.arange(5))
    np.testing.assert_array_equal(given, np.arange(5))


def test_constants_and_every_dtype() -> None:
    draw = np.random.default_rng(3)
    for dtype in ("float32", "float16", "int32", "int64", "bool", "int8", "uint8"):
        chain = Chain()
        x = chain.input((MAX,), dtype)
        table = (draw.random(MAX) * 100).astype(dtype)
        joined = chain.on_host("aten::hstack.out", (x, chain.constant(table)), chain.tensor((2 * MAX,), dtype))
        executor = executor_of(chain.graph(joined), open_device())
        for size in SIZES:
            given = (draw.random(size) * 100).astype(dtype)
            executor.poison()
            np.testing.assert_array_equal(executor.execute([given])[0], np.concatenate([given, table]), dtype)


def test_a_list_of_results() -> None:
    chain = Chain()
    x = chain.input((MAX, 6))
    halves = chain.tensor((MAX, 4)), chain.tensor((MAX, 2))
    chain.on_host("aten::split_copy.Tensor_out", x, 4, 1, halves)
    executor = executor_of(chain.graph(*halves), open_device())
    for size in SIZES:
        executor.poison()
        got = executor.execute([rows(size, 6)])
        np.testing.assert_array_equal(np.concatenate(got, 1), rows(size, 6))


def test_a_loop_that_only_the_data_ends() -> None:
    """Halved on the host until no element is above one; nothing but data moves from turn to turn."""
    chain = Chain()
    x = chain.input((MAX,))
    now = chain.node("aten.clone.default", x, None, chain.tensor((MAX,)))
    chain.on_host("aten::mul_.Scalar", now, 0.5, now)
    small = chain.on_host("aten::le.Scalar_out", now, 1.0, chain.tensor((MAX,), "bool"))
    done = chain.on_host("aten::all.all_out", small, chain.tensor((), "bool"))
    chain.node("liveshape.jump_false", done, 1, None)
    out = chain.node("aten.relu.default", now, chain.tensor((MAX,)))
    executor = executor_of(chain.graph(out), open_device())
    for size in (5, MAX, 1, 7):
        given = np.abs(rows(size, 1)[:, 0]) * 50 + 1
        expected = given / 2
        while expected.max() > 1:
            expected = expected / 2
        executor.poison()
        np.testing.assert_array_equal(executor.execute([given])[0], expected)


def test_an_element_that_is_read_in_every_turn_of_a_loop() -> None:
    """A number from data was read in the first turn alone."""
    chain = Chain()
    x = chain.input((4,), static=True)
    limit = chain.constant(np.full(4, 20, np.float32))
    now = chain.node("aten.clone.default", x, None, chain.tensor((4,)))
    more = chain.node("aten.add.Tensor", now, now, 1, chain.tensor((4,)))
    chain.node("liveshape.move", more, now)
    reached = chain.node("aten.ge.Tensor", now, limit, chain.tensor((4,), "bool"))
    done = chain.node("aten::item", reached, chain.scalar(value=False))
    chain.node("liveshape.jump_false", done, 1, None)
    executor = executor_of(chain.graph(now), open_device())
    for begin, end in ((1, 32), (3, 24), (7, 28), (1, 32)):
        np.testing.assert_array_equal(executor.execute([np.full(4, begin, np.float32)])[0], np.full(4, end))


def test_only_the_taken_branch_runs_on_the_host() -> None:
    chain = Chain()
    flag, x, out = chain.scalar(given=True, value=False), chain.input((MAX, 5)), chain.tensor((MAX, 5))
    chain.node("liveshape.jump_false", flag, 3, None)
    chain.on_host("aten::cumprod.out", x, 0, None, out)
    chain.node("liveshape.jump_false", False, 4, None)
    chain.node("aten.relu.default", x, out)
    executor = executor_of(chain.graph(out), open_device())
    for size, taken in ((MAX, True), (7, False), (5, True), (1, False), (MAX, True)):
        given = rows(size)
        executor.poison()
        expected = np.cumprod(given, 0) if taken else np.maximum(given, 0)
        np.testing.assert_allclose(executor.execute([taken, given])[0], expected, 1e-6)


def test_a_call_resumes_before_and_behind_the_host() -> None:
    chain = Chain()
    x, factor = chain.input((MAX,)), chain.scalar(value=1.0)
    kept = chain.node("aten.relu.default", x, chain.tensor((MAX,)))
    scaled = chain.on_host("aten::mul.Scalar_out", kept, factor, chain.tensor((MAX,)))
    out = chain.node("aten.neg.default", scaled, chain.tensor((MAX,)))
    executor = executor_of(chain.graph(out), open_device(), resume=(1, 2))
    for size in (MAX, 5, 7):
        given = rows(size, 1)[:, 0]
        executor.set_scalar(factor, 1.0)
        executor.poison()
        np.testing.assert_array_equal(executor.execute([given])[0], -np.maximum(given, 0))
        np.testing.assert_array_equal(executor.resume(2).result()[0], -np.maximum(given, 0))
        executor.set_scalar(factor, 3.0)
        np.testing.assert_array_equal(executor.resume(1).result()[0], -3 * np.maximum(given, 0))


def test_what_does_not_fit_is_an_error_and_the_next_call_is_right() -> None:
    chain = Chain()
    x = chain.input((MAX,), "int64")
    products = chain.on_host("aten::cumprod.out", x, 0, None, chain.tensor((MAX,), "int64"))
    few = chain.on_host("aten::nonzero.out", products, chain.tensor((3, 1), "int64"))
    inverse = chain.on_host("aten::bincount.out", x, None, 0, chain.tensor((10,), "int64"))
    executor = executor_of(chain.graph(products, few, inverse), open_device())

    def right() -> None:
        got = executor.execute([np.array([2, 0, 3])])
        assert [each.tolist() for each in got] == [[2, 0, 0], [[0]], [1, 0, 1, 1]]

    right()
    with pytest.raises(PlanError, match=r"cumprod.out \(node 0\): .*kept in 32 bits.*2147483648 does not fit"):
        executor.execute([np.full(31, 2)])
    right()
    with pytest.raises(ShapeError, match=r"nonzero.out \(node 1\): .*\(4, 1\) does not fit the allocated \(3, 1\)"):
        executor.execute([np.ones(4, np.int64)])
    right()
    with pytest.raises(PlanError, match=r"bincount.out \(node 2\): RuntimeError: .*non-negative"):
        executor.execute([np.array([-1, 0])])
    right()


def test_an_interrupt_at_any_line_leaves_no_trace() -> None:
    executor = executor_of(places_of_positive(), open_device())
    given = {size: rows(size) for size in (3, MAX)}
    counting = Lines()
    for size in given:
        check_places(executor.execute([given[size]]), given[size])
        counting.over(lambda size=size: executor.execute([given[size]]))  # type: ignore[misc]
    cut = 0
    for line in range(1, counting.count, 19):
        cut += Lines(line).over(lambda: executor.execute([given[3]]))
        check_places(executor.execute([given[MAX]]), given[MAX])
    assert cut > 20


def test_results_of_earlier_calls_may_be_waited_for_later() -> None:
    executor = executor_of(places_of_positive(), open_device())

    async def both() -> list[Any]:
        first, second = executor.start([rows(5)]), executor.start([rows(9)])
        return [await second.result_async(), await first.result_async()]

    second, first = asyncio.run(both())
    check_places(second, rows(9))
    check_places(first, rows(5))


def test_a_language_model_with_a_part_on_the_host_and_its_forks(tmp_path: Path) -> None:
    device = open_device()
    graph = llama_graph(TINY, device.limits)
    # What the embedding gives goes over the host, where it is taken once.
    first = next(node for node in graph.nodes if "embedding" in node.name)
    source = first.args[-1]
    before = Tensor("before the host", source.dtype, source.max_shape)
    found = find_on_host("aten::mul.Scalar_out")
    assert not isinstance(found, str)
    nodes = [*graph.nodes]
    nodes[first.index] = replace(first, args=(*first.args[:-1], before))
    nodes.insert(first.index + 1, found.bind(0, "on the host", (before, 1.0, source)))
    nodes = [replace(node, index=index) for index, node in enumerate(nodes)]
    changed = replace(graph, nodes=tuple(nodes), values=(*graph.values, before))
    with LanguageModel(Engine(token_graph(graph, {}), device), Origin("tiny", Source(b"tiny"))) as plain:
        expected = Text(plain, tmp_path)
    with LanguageModel(Engine(token_graph(changed, {}), device), Origin("tiny", Source(b"tiny"))) as model:
        text = Text(model, tmp_path)  # forks, comes back, and checks its own logits
        assert text.tokens == expected.tokens
        model.prefill(text.tokens[:7])
        text.follows()
