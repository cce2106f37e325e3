"""Operators without a kernel: the host computes them between two parts of a graph, at every live shape."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import liveshape
from liveshape.device.backends import open_device
from liveshape.errors import PlanError, ShapeError, UnsupportedError
from liveshape.formats.dtypes import SCALAR_TYPES
from liveshape.formats.source import Source
from liveshape.graph import Graph, Tensor
from liveshape.llm.engine.engine import Engine
from liveshape.llm.language_model import LanguageModel, Origin
from liveshape.llm.program.token_graph import token_graph
from liveshape.plan.compiling import compile
from liveshape.run.arrays import as_dtype
from liveshape.run.executor import Executor
from liveshape.run.host import _NUMPY, compile_with_host, find_on_host
from liveshape.run.torch_host import torch_operator
from liveshape.runtime import Runtime
from liveshape.tools.measuring.random_llamas import llama_graph
from tests.support.chains import Chain, executor_of
from tests.support.exporting import MethodSource, cached, lower_methods
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


# Real files


class Solved(torch.nn.Module):
    """An inverse between two operators that the partitioner takes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.more = torch.nn.Parameter(3 * torch.eye(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv_ex(torch.sigmoid(self.linear(x)) + self.more).inverse * 2


def solved() -> Path:
    torch.manual_seed(0)
    size = torch.export.Dim("s", min=1, max=9)
    source = MethodSource(Solved(), (torch.randn(9, 4, 4),), ({0: size},))
    return cached("host_solved", Solved, lambda: lower_methods({"forward": source}, rare=True))


def test_a_file_with_a_rare_operator_runs_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    golden = Solved().eval()
    with caplog.at_level(logging.WARNING, "liveshape"), liveshape.load(solved()) as model:
        for size in (9, 2, 1, 5, 9):
            x = torch.from_numpy(np.random.default_rng(size).standard_normal((size, 4, 4)).astype(np.float32))
            np.testing.assert_allclose(model(x), golden(x).detach().numpy(), 1e-4, 1e-5)
    told = [record.getMessage() for record in caplog.records if "no kernel" in record.getMessage()]
    assert told == [
        "forward: no kernel computes aten::linalg_inv_ex.inverse (1 x): the host does, and the device waits for it"
    ]


def test_strict_refuses_it() -> None:
    told = r"1 x aten::linalg_inv_ex.inverse \(instruction \d+\): no kernel; the host can compute it, slowly"
    with pytest.raises(UnsupportedError, match=told) as error:
        liveshape.load(solved(), strict=True)
    assert len(error.value.details) == 1
    with pytest.raises(UnsupportedError, match=told):
        Runtime(strict=True).load_program(solved()).load_method("forward")


def test_a_name_of_a_delegate_falls_back_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.ops import OPS

    monkeypatch.delitem(OPS, "aten.sigmoid.default")
    torch.manual_seed(0)
    golden = Solved().eval()
    with liveshape.load(solved()) as model:
        x = torch.randn(7, 4, 4)
        np.testing.assert_allclose(model(x), golden(x).detach().numpy(), 1e-4, 1e-5)


class Custom(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.liveshape_test.twice(x) + 1


def test_an_operator_that_nobody_knows_is_refused() -> None:
    library = torch.library.Library("liveshape_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.define("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    library.impl("twice.out", lambda x, *, out: out.copy_(x * 2), "CompositeExplicitAutograd")
    path = cached(
        "host_custom",
        Custom,
        lambda: lower_methods({"forward": MethodSource(Custom(), (torch.ones(4),))}, delegate=False),
    )
    find_on_host.cache_clear()
    with liveshape.load(path) as model:
        np.testing.assert_array_equal(model(np.ones(4, np.float32)), np.full(4, 3))
    library._destroy()
    find_on_host.cache_clear()
    with pytest.raises(UnsupportedError, match=r"1 x liveshape_test::twice.out .*no kernel, and torch.*does not know"):
        liveshape.load(path)


def test_what_a_kernel_refuses_runs_on_the_host() -> None:
    chain = Chain()
    x = chain.input((MAX,), "uint8")
    capped = chain.node("aten::clamp.out", x, 3, 7, chain.tensor((MAX,), "uint8"))
    graph, device = chain.graph(capped), open_device()
    with pytest.raises(UnsupportedError, match=r"1 x aten::clamp.out \(node 0\): .*uint8"):
        compile(graph, device.limits)
    executor = Executor(compile_with_host(graph, device.limits), device)
    for size in SIZES:
        given = np.arange(size, dtype=np.uint8)
        executor.poison()
        np.testing.assert_array_equal(executor.execute([given])[0], given.clip(3, 7))


def test_where_torch_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    path = solved()
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "liveshape.run.torch_host", raising=False)
    find_on_host.cache_clear()
    try:
        found = find_on_host("aten::cumprod.out")
        assert not isinstance(found, str)
        assert found.library == "numpy"
        assert find_on_host("aten::linalg_inv_ex.inverse") == (
            "torch, which could compute it on the host, is not installed: pip install torch"
        )
        assert find_on_host("mine::own.out") == "nothing on the host knows it"
        with pytest.raises(UnsupportedError, match=r"linalg_inv_ex.inverse .*no kernel, and torch, .*is not installed"):
            liveshape.load(path)
    finally:
        find_on_host.cache_clear()


@pytest.mark.parametrize("name", ["aten::from_file.out", "aten.from_file.default"])
def test_no_operator_that_looks_outside_of_the_program(name: str) -> None:
    assert find_on_host(name) == "torch does not compute it from tensors"


# numpy and torch


@pytest.mark.parametrize("name", sorted(_NUMPY))
def test_numpy_computes_what_torch_does(name: str) -> None:
    by_torch, by_numpy = torch_operator(name), _NUMPY[name]
    assert not isinstance(by_torch, str)
    assert (by_torch.inputs, by_torch.many, by_torch.mutates) == (by_numpy.inputs, by_numpy.many, by_numpy.mutates)
    draw = np.random.default_rng(1)
    whole = "gcd" in name
    for shape in ((3, 3), (7, 3), (1, 3), (0, 3)):
        arrays = [draw.integers(-9, 9, shape).astype(np.int64 if whole else np.float32) for _ in range(2)]
        rest = {"cumprod": [arrays[0], 0, None], "trace": [arrays[0]], "linalg_cross": [*arrays, -1]}
        given = next((row for word, row in rest.items() if word in name), arrays)
        dtypes = ["int64" if whole else "float32"]
        (got,), (want,) = by_numpy.function(given, dtypes), by_torch.function(given, dtypes)
        np.testing.assert_allclose(got, want, 1e-6)
        assert np.asarray(got).shape == np.asarray(want).shape


_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64", "complex64")


def _drawn(dtype: str, draw: Any) -> Any:
    """Small numbers, zeros among them, in which products are exact; NaN and infinity where there are such."""
    array = draw.integers(0 if dtype in ("bool", "uint8") else -3, 4, (5, 3))
    if dtype == "complex64":
        return (array + 1j * draw.integers(-3, 4, (5, 3))).astype(dtype)
    array = array.astype(dtype)
    if array.dtype.kind == "f":
        array[0] = np.nan, np.inf, -np.inf
    return array


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("name", sorted({name.split("::")[1].removesuffix(".out") for name in _NUMPY if "::" in name}))
def test_numpy_computes_what_torch_does_in_every_dtype(name: str, dtype: str) -> None:
    draw = np.random.default_rng(3)
    first, second = _drawn(dtype, draw), _drawn(dtype, draw)
    finite = np.where(np.isfinite(first), first, 1).astype(dtype)
    kinds = [number for number, kind in SCALAR_TYPES.items() if kind in _DTYPES]
    calls: list[list[Any]] = {
        "cumprod": [[first, 0, None], *([finite, 1, number] for number in kinds)],
        "trace": [[first]],
        "linalg_cross": [[finite, finite[::-1], -1], [finite, second[1:2], 1]],
    }.get(name, [[first, second], [first, second[:1]]])
    by_torch = torch_operator(f"aten.{name}.default")
    assert not isinstance(by_torch, str)
    for arguments in calls:
        try:
            (want,) = by_torch.function(arguments, [None])
        except RuntimeError:  # no operator of torch in this dtype
            continue
        (got,) = _NUMPY[f"aten::{name}.out"].function(arguments, [str(want.dtype)])
        got = as_dtype("out", np.asarray(got), str(want.dtype))
        np.testing.assert_array_equal(got, want)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)


def test_marked_conjugates_and_negatives_are_numbers_to_numpy() -> None:
    x = np.array([1 + 2j, 3 - 4j], np.complex64)
    for name, want in (("aten::_conj", x.conj()), ("aten::_neg_view", -x), ("aten::resolve_conj", x)):
        operator = torch_operator(name)
        assert not isinstance(operator, str)
        np.testing.assert_array_equal(operator.function([x], ["complex64"])[0], want)


_ROWS: dict[str, tuple[Any, Any]] = {
    "aten::cumprod.out": (lambda x: (x, 0, None), lambda x: torch.cumprod(x, 0)),
    "aten::logcumsumexp.out": (lambda x: (x, 1), lambda x: torch.logcumsumexp(x, 1)),
    "aten::triu.out": (lambda x: (x, 1), lambda x: torch.triu(x, 1)),
    "aten::sinc.out": (lambda x: (x,), torch.sinc),
    "aten::fmax.out": (lambda x: (x, x), lambda x: torch.fmax(x, x)),
    "aten::rot90.out": (lambda x: (x, 2, (0, 1)), lambda x: torch.rot90(x, 2)),
    "aten::renorm.out": (lambda x: (x, 2, 0, 1), lambda x: torch.renorm(x, 2, 0, 1)),
}


def _chained(names: list[str], sizes: list[int], width: int) -> None:
    chain = Chain()
    value = chain.input((MAX, width))
    for name in names:
        value = chain.on_host(name, *_ROWS[name][0](value), chain.tensor((MAX, width)))
        value = chain.node("aten.tanh.default", value, chain.tensor((MAX, width)))
    executor = executor_of(chain.graph(value), open_device())
    for size in sizes:
        expected = torch.from_numpy(rows(size, width))
        for name in names:
            expected = torch.tanh(_ROWS[name][1](expected))
        executor.poison()
        np.testing.assert_allclose(executor.execute([rows(size, width)])[0], expected.numpy(), 1e-4, 1e-5)


_DRAWN = {
    "names": st.lists(st.sampled_from(sorted(_ROWS)), min_size=1, max_size=4),
    "sizes": st.lists(st.integers(1, MAX), min_size=1, max_size=4),
    "width": st.integers(1, 9),
}


@settings(max_examples=8, deadline=None)
@given(**_DRAWN)
def test_rows_of_host_operators(names: list[str], sizes: list[int], width: int) -> None:
    _chained(names, sizes, width)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(**_DRAWN)
def test_many_rows_of_host_operators(names: list[str], sizes: list[int], width: int) -> None:
    _chained(names, sizes, width)


def test_what_a_delegate_packs_is_not_for_torchs_operator_of_that_name() -> None:
    import executorch.backends.vulkan.custom_ops_lib  # noqa: F401  registers it

    find_on_host.cache_clear()
    found = find_on_host("et_vk.q8ta_linear.default")
    assert isinstance(found, str)
    assert "packs its arguments otherwise" in found


@pytest.mark.parametrize("name", ["aten.sort.default", "aten::sort.values", "aten.topk.default", "aten::topk.values"])
def test_equals_keep_their_order(name: str) -> None:
    """Torch leaves it open, and random graphs saw the host by it."""
    found = torch_operator(name)
    assert not isinstance(found, str)
    x = np.array([[2.0, 1.0] * 20], np.float16)
    given = (1, False) if "sort" in name else (40, 1, False, True)
    _, places = found.function([x, *given], ["float16", "int64"])
    assert places.tolist() == [[*range(1, 40, 2), *range(0, 40, 2)]]
