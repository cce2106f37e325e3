"""Norms, softmax and reductions store an expression of their result: in one node, without a dispatch of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Graph, Limits
from liveshape.lower.lowering import optimized, simplified
from liveshape.plan.compiling import compile
from tests.support.chains import Chain, executor_of

MAX = 41
NORMS = ("native_layer_norm", "native_group_norm", "_native_batch_norm_legit_no_training")
SUMS = ("sum.dim_IntList", "mean.dim", "var.correction", "amax.default", "argmax.default")


def graph_of(operator: str, width: int) -> Graph:
    """sigmoid(operator(x) * y) of live rows."""
    random, chain = np.random.default_rng(0), Chain()
    shape: tuple[int, ...] = (MAX, 8, width)
    x = chain.input(shape)
    weights = [
        chain.constant(random.random(width if operator in ("native_layer_norm", "rms_norm") else 8, np.float32) + 0.5)
        for _ in range(4)
    ]
    arguments: tuple[Any, ...] = {
        "native_layer_norm": ((width,), *weights[:2], 1e-5),
        "native_group_norm": (*weights[:2], MAX, 8, width, 4, 1e-5),
        "_native_batch_norm_legit_no_training": (*weights, 0.1, 1e-5),
        "_softmax": (-1, False),
        "rms_norm": (weights[0], 1e-6),
        "sum.dim_IntList": ((2,), True, None),
        "mean.dim": ((1,), True, None),
        "var.correction": ((2,), 0, True),
        "amax.default": ((2,), True),
        "argmax.default": (2, True),
    }[operator]
    if operator in SUMS:
        shape = (MAX, 1, width) if operator == "mean.dim" else (MAX, 8, 1)
    dtype = "int64" if operator == "argmax.default" else "float32"
    result = chain.tensor(shape, dtype)
    statistics = {"native_layer_norm": (MAX, 8, 1), "native_group_norm": (MAX, 4)}.get(operator, (0,))
    saved = tuple(chain.tensor(statistics) for _ in range(2)) if operator in NORMS else ()
    name = f"{'et_vk' if operator == 'rms_norm' else 'aten'}.{operator}{'' if operator in SUMS else '.default'}"
    chain.node(name, x, *arguments, (result, *saved) if saved else result)
    y = chain.input(shape)
    product = chain.node("aten.mul.Tensor", result, y, chain.tensor(shape))
    return chain.graph(chain.node("aten.sigmoid.default", product, chain.tensor(shape)))


@pytest.mark.parametrize("cooperating", [4, 64])
@pytest.mark.parametrize("operator", [*NORMS, "rms_norm", "_softmax", *SUMS])
def test_an_expression_of_the_result_is_stored_instead(operator: str, cooperating: int) -> None:
    device = open_device()
    device = open_device(limits=replace(device.limits, max_cooperating_threads=cooperating))
    width = 12 if cooperating == 4 else 7
    plain = graph_of(operator, width)
    graph = optimized(simplified(graph_of(operator, width), device.limits), device.limits)
    assert [node.name for node in graph.nodes] == ["liveshape.composed"]
    executors = [executor_of(each, device) for each in (plain, graph)]
    for rows in (MAX, 1, 5, MAX):
        random = np.random.default_rng(rows)
        inputs = [random.standard_normal((rows, *tensor.max_shape[1:])).astype(np.float32) for tensor in plain.inputs]
        results = []
        for each in executors:
            each.poison()
            results.append(each.execute(inputs)[0])
        np.testing.assert_allclose(results[1], results[0], 2e-6, 1e-6)
    counts = [len(each.encoder.commands(each.live, 0, len(each.graph.nodes))) for each in executors]
    assert counts[1] == counts[0] - 2, "the product and the sigmoid have no dispatch of their own"


def test_a_product_in_tiles_of_registers_stores_any_expression() -> None:
    """GELU of it, which calls functions: at every number of rows there is no dispatch behind the product."""
    limits = replace(open_device().limits, max_invocations=256, max_cooperating_threads=256)
    device, chain, random = open_device(limits=limits), Chain(), np.random.default_rng(0)
    weight = chain.constant(random.standard_normal((66, 40)).astype(np.float32))
    x, y = chain.input((70, 40)), chain.input((70, 66))
    product = chain.node("aten.linear.default", x, weight, None, chain.tensor((70, 66)))
    gated = chain.node("aten.gelu.default", product, "none", chain.tensor((70, 66)))
    plain = chain.graph(chain.node("aten.mul.Tensor", gated, y, chain.tensor((70, 66))))
    fused = optimized(simplified(plain, limits), limits)
    executors = [executor_of(each, device) for each in (plain, fused)]
    for rows in (70, 1, 33, 5, 16, 69, 70):
        inputs = [random.standard_normal((rows, tensor.max_shape[1])).astype(np.float32) for tensor in plain.inputs]
        for each in executors:
            each.poison()
        wanted, found = (each.execute(inputs)[0] for each in executors)
        np.testing.assert_allclose(found, wanted, 2e-6, 1e-6)
        live, commands = executors[1].live, executors[1].encoder.commands(executors[1].live, 0, len(fused.nodes))
        assert len(commands) == 1
        assert (rows > 2) is any("matmul/register_tiles + gelu" in label for label, *_ in live.described(0))


def test_an_epilogue_rounds_what_is_computed_in_halves() -> None:
    """NVIDIA's compiler skips a conversion to a half and back: the kernel says it in bits, which no compiler skips."""
    chain = Chain()
    x, y = chain.input((MAX, 8), "float16"), chain.input((MAX, 8), "float16")
    weight = chain.constant(np.ones((8, 8), np.float16))
    product = chain.node("aten.linear.default", x, weight, None, chain.tensor((MAX, 8), "float16"))
    graph = chain.graph(chain.node("aten.mul.Tensor", product, y, chain.tensor((MAX, 8), "float16")))
    plan = compile(optimized(graph, Limits()), Limits())
    texts = [variant.source for route in plan.routes for variant, _ in route.dispatched]
    assert texts
    for text in texts:
        assert "let epilogue_x0 = epilogue_half_rounded(vec4<f32>(f32(v)));" in text
