"""Values that several nodes read are stored side by side, by what computes them: the same bytes, in one dispatch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Graph
from liveshape.graph.expression import Applied, Expression
from liveshape.lower.lowering import optimized, simplified
from tests.support.chains import Chain, executor_of

MAX = 41
ANCHORS = ("linear", "layer_norm", "rms_norm", "_softmax", "convolution", "cat", "sum")
DTYPES = ("float32", "float16", "bfloat16")


def anchored(operator: str, dtype: str, width: int) -> tuple[Chain, Any]:
    """A chain with one node that takes epilogues, of live rows, and its result."""
    random, chain = np.random.default_rng(0), Chain()
    x = chain.input((MAX, 8, width), dtype)
    kind = "float16" if dtype == "float16" else "float32"

    def constant(*shape: int) -> Any:
        made = chain.constant((random.random(shape) / 4).astype(kind))
        if dtype == "bfloat16":
            chain.values[-1] = made = replace(made, dtype=dtype, constant=_upper_halves(made.constant))
        return made

    result = chain.tensor((MAX, 8, 1) if operator == "sum" else (MAX, 8, width), dtype)
    arguments: tuple[Any, ...] = {
        "linear": lambda: ("aten.linear.default", x, constant(width, width), None),
        "layer_norm": lambda: ("liveshape.layer_norm", x, (width,), constant(width), None, 1e-5),
        "rms_norm": lambda: ("et_vk.rms_norm.default", x, constant(width), 1e-5),
        "_softmax": lambda: ("aten._softmax.default", x, -1, False),
        "convolution": lambda: (
            *("aten.convolution.default", x, constant(8, 8, 3), None),
            *((1,), (1,), (1,), False, (0,), 1),
        ),
        "cat": lambda: ("aten.flip.default", x, (2,)),
        "sum": lambda: ("aten.sum.dim_IntList", x, (2,), True, None),
    }[operator]()
    return chain, chain.node(*arguments, result)


def _upper_halves(data: Any) -> Any:
    return memoryview(np.frombuffer(data, np.uint16)[1::2].copy()).cast("B")


def outputs_of(graph: Graph, optimize: bool, device: Any) -> tuple[Any, Graph]:
    made = optimized(simplified(graph, device.limits), device.limits) if optimize else graph
    return executor_of(made, device), made


def compared(graph: Graph, device: Any, sizes: tuple[int, ...] = (MAX, 1, 5, MAX)) -> tuple[int, Graph]:
    """Both ways give the same bytes at many live sizes; how many dispatches fewer fusion has, and the fused graph."""
    (plain, _), (fused, made) = (outputs_of(graph, each, device) for each in (False, True))
    for rows in sizes:
        random = np.random.default_rng(rows)
        inputs = []
        for tensor in graph.inputs:
            kind = "float16" if tensor.dtype == "float16" else "float32"
            values = random.standard_normal((rows, *tensor.max_shape[1:])).astype(kind)
            if tensor.dtype == "bfloat16":
                values = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
            inputs.append(values)
        results = []
        for each in (plain, fused):
            each.poison()
            results.append([np.asarray(value) for value in each.execute(inputs)])
        for one, other in zip(*results, strict=True):
            assert one.tobytes() == other.tobytes(), (rows, np.abs(one.astype(np.float64) - other).max())
    counts = [len(each.encoder.commands(each.live, 0, len(each.graph.nodes))) for each in (plain, fused)]
    return counts[0] - counts[1], made


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operator", ANCHORS)
def test_a_result_is_stored_beside_what_becomes_of_it(operator: str, dtype: str) -> None:
    """The result itself, its absolute values and its negative, which all somebody reads."""
    for cooperating, width in ((4, 12), (64, 7)):
        device = open_device()
        device = open_device(limits=replace(device.limits, max_cooperating_threads=cooperating))
        chain, result = anchored(operator, dtype, width)
        other = chain.node("aten.abs.default", result, chain.tensor(result.max_shape, dtype))
        negative = chain.node("aten.neg.default", result, chain.tensor(result.max_shape, dtype))
        fewer, graph = compared(chain.graph(negative, result, other), device)
        assert [(node.name, len(node.outputs)) for node in graph.nodes] == [("liveshape.composed", 3)]
        assert fewer == 2


def test_expressions_that_read_each_other_are_one_dispatch() -> None:
    """A sum that others read, what is computed of it, and what reads the same inputs."""
    device, chain = open_device(), Chain()
    x, y = chain.input((MAX, 6)), chain.constant(np.ones(1, np.float32))

    def node(operator: str, *given: Any) -> Any:
        return chain.node(operator, *given, chain.tensor((MAX, 6)))

    total = node("aten.add.Tensor", x, y, 1)
    sign = node("aten.sign.default", total)
    larger = node("aten.maximum.default", x, sign)
    beside = node("aten.abs.default", x)
    fewer, graph = compared(chain.graph(total, sign, larger, beside), device)
    assert [len(node.outputs) for node in graph.nodes] == [4]
    assert fewer == 3


def test_more_results_than_a_kernel_stores_are_two_dispatches() -> None:
    device, chain = open_device(), Chain()
    x = chain.input((MAX, 6))
    names = ("abs", "neg", "sign", "relu", "ceil", "floor")
    results = [chain.node(f"aten.{name}.default", x, chain.tensor((MAX, 6))) for name in names]
    fewer, graph = compared(chain.graph(*results), device)
    assert [len(node.outputs) for node in graph.nodes] == [4, 2]
    assert fewer == 4


def test_what_a_later_value_needs_stays_behind_it() -> None:
    """An expression of the result and of something that is computed later has the place of that."""
    device, chain = open_device(), Chain()
    x = chain.input((MAX, 6))
    first = chain.node("aten._softmax.default", x, -1, False, chain.tensor((MAX, 6)))
    later = chain.node("aten.cumsum.default", first, 0, None, chain.tensor((MAX, 6)))
    total = chain.node("aten.maximum.default", first, later, chain.tensor((MAX, 6)))
    _, graph = compared(chain.graph(total, first), device)
    assert [len(node.outputs) for node in graph.nodes] == [1, 1, 1]


def test_a_tensor_that_is_written_in_between_is_read_before() -> None:
    """An operand that is written behind the result cannot be read at the place of that."""
    device, chain = open_device(), Chain()
    x, y, index = chain.input((MAX, 6)), chain.constant(np.ones(6, np.float32)), chain.constant(np.zeros(1, np.int64))
    state = chain.node("aten.neg.default", y, chain.tensor((6,)))
    total = chain.node("aten._softmax.default", x, -1, False, chain.tensor((MAX, 6)))
    chain.node("aten.index_put_.default", state, (index,), chain.constant(np.ones(1, np.float32)), False, state)
    out = chain.node("aten.maximum.default", total, state, chain.tensor((MAX, 6)))
    compared(chain.graph(out, total), device)


def test_an_expression_of_another_shape_is_a_dispatch_of_its_own() -> None:
    device, chain = open_device(), Chain()
    x, y = chain.input((MAX, 1)), chain.input((MAX, 6))
    small = chain.node("aten.abs.default", x, chain.tensor((MAX, 1)))
    large = chain.node("aten.maximum.default", small, y, chain.tensor((MAX, 6)))
    _, graph = compared(chain.graph(small, large), device)
    assert [len(node.outputs) for node in graph.nodes] == [1, 1]


def test_too_many_bindings_are_separate_dispatches() -> None:
    """Where no kernel binds that many, the result goes to its own memory and the others follow."""
    device = open_device(limits=replace(open_device().limits, max_bindings=7))
    chain, result = anchored("linear", "float32", 12)
    more = [chain.constant(np.full(12, part, np.float32)) for part in (-1, 0, 1)]
    total = result
    for each in more:
        total = chain.node("aten.maximum.default", total, each, chain.tensor(result.max_shape))
    fewer, graph = compared(chain.graph(total, result), device)
    assert [len(node.outputs) for node in graph.nodes] == [2]
    assert fewer == 2


def test_expressions_say_what_they_keep() -> None:
    calls = Applied("abs", (0,), "float32"), Applied("neg", (1,), "float16")
    expression = Expression(("float32",), (), calls, kept=(1, 0))
    assert str(expression) == "v0 = abs(x0); neg(v0), v0, x0"
    assert expression.results == (2, 1, 0)
