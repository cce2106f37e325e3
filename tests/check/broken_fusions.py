"""Fusions broken on purpose: fused nodes that read something else than the operators that they stand for.

A mutant has two inputs of one shape swapped, a number changed, a weight moved by half of its bytes, or another function
in its expression. It counts if the whole program gives other bytes then. The check must name the node, as a fusion and
not as an operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from liveshape.check import checking
from liveshape.check.findings import FUSION, OPERATOR
from liveshape.device.backends import open_device
from liveshape.errors import LiveshapeError
from liveshape.graph import Graph, Node, Tensor, Value
from liveshape.graph.constants import all_bytes
from liveshape.graph.expression import Expression
from liveshape.lower.lowering import optimized, simplified
from liveshape.ops.composed import Composition
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor
from liveshape.tools.measuring.random_llamas import Llama, Shape
from tests.support.chains import Chain

Inputs = list[list[Any]]


class FusionVerdict(NamedTuple):
    """A mutant of a fused node, and whether the check names it as a fusion."""

    operator: str
    kind: str
    named: bool


def gated() -> tuple[Graph, Inputs]:
    """A SwiGLU of float layers, a residual add and an RMSNorm."""
    random, chain = np.random.default_rng(0), Chain()
    shape = (1, 9, 32)
    x = chain.input(shape)
    weights = [chain.constant(random.standard_normal((32, 32)).astype(np.float32)) for _ in range(2)]
    gate, up = (chain.node("aten.linear.default", x, weight, None, chain.tensor(shape)) for weight in weights)
    curve = chain.node("aten.sigmoid.default", gate, chain.tensor(shape))
    bent = chain.node("aten.mul.Tensor", gate, curve, chain.tensor(shape))
    both = chain.node("aten.mul.Tensor", bent, up, chain.tensor(shape))
    total = chain.node("aten.add.Tensor", both, x, 1, chain.tensor(shape))
    scale = chain.constant(random.random(32, np.float32))
    norm = chain.node("et_vk.rms_norm.default", total, scale, 0.1, chain.tensor(shape))
    calls = [[random.standard_normal((1, rows, 32)).astype(np.float32)] for rows in (9, 1)]
    return chain.graph(total, norm), calls


def llama() -> tuple[Graph, Inputs]:
    """A language model of 4-bit layers: projections, rotary embeddings, the KV cache, gated units, residual adds."""
    random = np.random.default_rng(0)
    graph = Llama(Shape(2, 64, 96, 4, 2, 16, 128, 32, 16, 32)).graph()
    return graph, [[random.integers(0, 128, (1, rows)), np.zeros(1, np.int64)] for rows in (5, 1)]


def curves() -> tuple[Graph, Inputs]:
    """Two products with epilogues, one of them behind a view, and a tree of curves between, with a live number."""
    random, chain = np.random.default_rng(0), Chain()
    shape, flat = (1, 9, 32), (9, 32)
    x, number = chain.input(shape), chain.scalar(given=True, value=2)
    weights = [chain.constant(random.standard_normal((32, 32)).astype(np.float32)) for _ in range(2)]
    first = chain.node("aten.linear.default", x, weights[0], None, chain.tensor(shape))
    bent = chain.node("aten.gelu.default", first, "tanh", chain.tensor(shape))
    total = chain.node("aten.add.Tensor", bent, x, 1, chain.tensor(shape))
    less = chain.node("aten.sub.Scalar", x, number, 1, chain.tensor(shape))
    curve = chain.node("aten.sigmoid.default", less, chain.tensor(shape))
    mixed = chain.node("aten.mul.Tensor", curve, x, chain.tensor(shape))
    rows = chain.node("aten.view_copy.default", mixed, (-1, 32), chain.tensor(flat))
    product = chain.node("aten.mm.default", rows, weights[1], chain.tensor(flat))
    back = chain.node("aten.view_copy.default", product, (1, -1, 32), chain.tensor(shape))
    ratio = chain.node("aten.div.Scalar", back, 1.5, chain.tensor(shape))
    last = chain.node("aten.sub.Tensor", ratio, total, 1, chain.tensor(shape))
    calls = [[random.standard_normal((1, rows, 32)).astype(np.float32), rows] for rows in (9, 1)]
    return chain.graph(total, mixed, last), calls


def mutants_of(node: Node) -> Iterator[tuple[str, Node]]:
    """The node with one thing broken, of each kind that it has."""
    for place, argument in enumerate(node.args[:-1]):
        # Rows of operands and of numbers.
        if isinstance(argument, tuple) and not isinstance(argument, str):
            inner = replace(node, args=(*argument, node.args[-1]), mutates=())
            for kind, mutant in mutants_of(inner):
                yield kind, replace(node, args=(*node.args[:place], mutant.args[:-1], *node.args[place + 1 :]))
        for mutated in _other_function(argument):
            yield "a function", replace(node, args=(*node.args[:place], mutated, *node.args[place + 1 :]))
    tensors = [
        (place, each)
        for place, each in enumerate(node.args[:-1])
        if isinstance(each, Tensor) and place not in node.mutates
    ]
    for (first, one), (second, other) in ((a, b) for a in tensors for b in tensors if a[0] < b[0]):
        if one is not other and (one.dtype, one.max_shape) == (other.dtype, other.max_shape):
            args = list(node.args)
            args[first], args[second] = other, one
            yield "inputs swapped", replace(node, args=tuple(args))
            break
    for place, each in enumerate(node.args[:-1]):
        if isinstance(each, float):
            yield "a number", replace(node, args=(*node.args[:place], each + 0.5, *node.args[place + 1 :]))
    for place, each in tensors:
        if each.constant is not None:
            raw = np.frombuffer(all_bytes(each.constant), np.uint8)
            moved = replace(each, constant=memoryview(np.roll(raw, len(raw) // 8 * 4).tobytes()))
            yield "a weight", replace(node, args=(*node.args[:place], moved, *node.args[place + 1 :]))
            break


_OTHERS = {"add": "sub", "sub": "add", "mul": "maximum", "div": "mul", "sigmoid": "tanh", "gelu_tanh": "silu"}


def _other_function(argument: Any) -> Iterator[Any]:
    """The expression of a fused node with each of its calls another one in turn."""
    if isinstance(argument, Composition):
        yield from (replace(argument, expression=each) for each in _other_function(argument.expression))
    if isinstance(argument, Expression):
        for place, call in enumerate(argument.calls):
            if call.function in _OTHERS:
                other = replace(call, function=_OTHERS[call.function])
                yield replace(argument, calls=(*argument.calls[:place], other, *argument.calls[place + 1 :]))


def with_node(graph: Graph, node: Node) -> Graph:
    """A graph with another node of the same index."""
    nodes = tuple(node if each.index == node.index else each for each in graph.nodes)
    known: dict[Value, None] = dict.fromkeys((*graph.values, *node.inputs))
    return replace(graph, nodes=nodes, values=tuple(known))


def results(graph: Graph, calls: Inputs) -> list[bytes]:
    """What a graph gives, each call from its first state on."""
    device = open_device()
    executor = Executor(compile(graph, device.limits, Choices(warm=False)), device)
    found = []
    for inputs in calls:
        executor.restart()
        found += [np.asarray(each).tobytes() for each in executor.execute(inputs)]
    executor.close()
    return found


def verdicts(graph: Graph, calls: Inputs) -> Iterator[FusionVerdict]:
    """Every mutant that counts, of the first fused node of each operator."""
    device = open_device()
    fused = optimized(simplified(graph, device.limits), device.limits)
    unfused = {(node.name, node.args) for node in graph.nodes}
    first = {node.name: node for node in reversed(fused.nodes) if (node.name, node.args) not in unfused}
    right = results(fused, calls)
    for node in first.values():
        for kind, mutant in mutants_of(node):
            broken = with_node(fused, mutant)
            try:
                if results(broken, calls) == right:
                    continue
            except LiveshapeError:
                continue  # it cannot run
            with mock.patch.object(checking, "simplified", lambda graph, limits, broken=broken: broken):
                check = checking.Check(graph, device, device.limits)
            for inputs in calls:
                check.call(inputs)
            check.close()
            named = {(each.kind, each.node) for each in check.found.divergences}
            alarms = any(each == OPERATOR for each, _ in named)
            yield FusionVerdict(node.name, kind, (FUSION, node.label) in named and not alarms)
