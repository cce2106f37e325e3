"""Fused operators are row-wise as those that they replace: told by traits node by node, and seen on
the device, where a row that changes leaves all others what they were, and rows in another order give results so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Graph, Tensor
from liveshape.lower.activations import with_activations
from liveshape.lower.fusion import fuse
from tests.models.test_layers import Layers
from tests.support.chains import executor_of

ROWS, DEPTH, SLOTS = 5, 64, 9
Rows = dict[Tensor, int]


def three(made: Layers, x: Any) -> list[Any]:
    return [made.layer(x, 12), made.layer(x, 8), made.layer(x, 4)]


def of_floats(made: Layers, x: Any, columns: int) -> Any:
    """A layer of floats."""
    weight = made.chain.constant(made.random.standard_normal((columns, DEPTH)).astype(np.float32))
    return made.chain.node("aten.linear.default", x, weight, None, made.chain.tensor((1, ROWS, columns)))


def normed_sum(made: Layers, x: Any) -> list[Any]:
    total = made.add(x, made.chain.node("aten.tanh.default", x, made.chain.tensor(x.max_shape)))
    return [total, made.norm(total)]


def quantized(operator: str) -> Callable[[Layers, Any], list[Any]]:
    """Quantized rows of a layer, with a scale and a zero point for each."""

    def made_of(made: Layers, x: Any) -> list[Any]:
        chain = made.chain
        steps = chain.tensor((1, ROWS, 1)), chain.tensor((1, ROWS, 1), "int8")
        rule = (x, "ASYMMETRIC", (1, 1, DEPTH), 1, -128, 127, None, None, None, True, steps)
        chain.node("torchao.choose_qparams_affine.default", *rule)
        in_bytes = operator == "liveshape.quantize_rows"
        shape = (1, ROWS, DEPTH // 32 * 48) if in_bytes else (1, ROWS, DEPTH)
        rows = chain.node(operator, x, *steps, chain.tensor(shape, "uint8" if in_bytes else "float32"))
        weight = chain.constant(made.random.integers(0, 256, (12, DEPTH // 2), np.uint8))
        scales = chain.constant(np.ones((DEPTH // 32, 12), np.float32))
        return [chain.node("et_vk.linear_q4gsw.default", rows, weight, scales, 32, None, chain.tensor((1, ROWS, 12)))]

    return made_of


def cached(layer: Callable[[Layers, Any, int], Any], normed: bool = False) -> Callable[[Layers, Any], list[Any]]:
    """The QKV projection of rows of many sequences, at their positions, and to their slots of the cache."""

    def made_of(made: Layers, x: Any) -> list[Any]:
        chain, places = made.chain, made.chain.input((ROWS, 2), "int32")
        source = made.norm(x) if normed else x
        q, k, v = (
            made.view(layer(made, source, count * 8), (1, -1, count, 8), (1, ROWS, count, 8)) for count in (4, 2, 2)
        )
        tables = [chain.constant(made.random.standard_normal((SLOTS, 8)).astype(np.float32)) for _ in range(2)]
        rotated = tuple(chain.tensor(each.max_shape) for each in (q, k))
        chain.node("et_vk.apply_rotary_emb_hf.default", q, k, *tables, places, rotated)
        caches = [chain.constant(np.zeros((1, SLOTS, 2, 8), np.float32)) for _ in range(2)]
        chain.node("liveshape.update_caches", rotated[1], v, *caches, places, None)
        return [rotated[0]]

    return made_of


PATTERNS: dict[str, Callable[[Layers, Any], list[Any]]] = {
    "liveshape.add_rms_norm": normed_sum,
    "liveshape.qkv_linear_q4gsw": three,
    "liveshape.gated_linear_q4gsw": lambda made, x: [made.gated(x, 12)],
    "liveshape.residual_linear_q4gsw": lambda made, x: [made.add(x, made.layer(x, DEPTH))],
    "liveshape.residual_quantized_linear_q4gsw": lambda made, x: [
        made.layer(made.norm(made.add(x, made.layer(x, DEPTH))), 12)
    ],
    "liveshape.rms_norm_linear_q4gsw": lambda made, x: [made.layer(made.norm(x), 12)],
    "liveshape.rms_norm_qkv_linear_q4gsw": lambda made, x: three(made, made.norm(x)),
    "liveshape.rms_norm_gated_linear_q4gsw": lambda made, x: [made.gated(made.norm(x), 12)],
    "liveshape.rotary_to_cache": cached(of_floats),
    "liveshape.rotary_linear_q4gsw": cached(Layers.layer),
    "liveshape.rms_norm_rotary_linear_q4gsw": cached(Layers.layer, normed=True),
    "liveshape.fake_quantize_rows": quantized("liveshape.fake_quantize_rows"),
    "liveshape.quantize_rows": quantized("liveshape.quantize_rows"),
    "liveshape.move": lambda made, x: [made.chain.node("liveshape.move", x, made.chain.tensor(x.max_shape))],
}


def proved(graph: Graph, rows: Rows) -> Rows:
    """Every tensor of a graph that carries the rows of its inputs, or an error that names what may mix them."""
    carried = dict(rows)
    for node in graph.nodes:
        if any(value in carried for value in node.inputs):
            found = node.carried(carried)
            assert found is not None, f"{node.label} may mix rows"
            carried |= found
    return carried


def many_threads() -> Device:
    return open_device(limits=replace(open_device().limits, max_invocations=256, max_cooperating_threads=256))


@pytest.mark.parametrize("operator", PATTERNS)
def test_fused_patterns_are_row_wise(operator: str) -> None:
    made = Layers(group=32)
    x = made.chain.input((1, ROWS, DEPTH))
    graph = made.chain.graph(*PATTERNS[operator](made, x))
    device = many_threads()
    fused = fuse(graph, device.limits)
    if operator == "liveshape.residual_quantized_linear_q4gsw":
        fused = with_activations(fused, "int8", device.limits)
    assert operator in [node.name for node in fused.nodes]
    for each in (graph, fused):
        carried = proved(each, {value: 1 if value is x else 0 for value in each.inputs})
        assert [carried.get(value) for value in each.outputs] == [1] * len(each.outputs)
    executor = executor_of(fused, device)
    given, other = made.random.standard_normal((2, 1, ROWS, DEPTH)).astype(np.float32)
    tables = [made.random.permutation(SLOTS)[:ROWS, None].repeat(2, 1).astype(np.int32) for _ in graph.inputs[1:]]
    before = executor.execute([given, *tables])
    changed, moved = given.copy(), [table.copy() for table in tables]
    changed[:, -1] = other[:, -1]
    for table in moved:
        table[-1] = SLOTS
    order = np.roll(np.arange(ROWS), 1)
    for got, kept in zip(executor.execute([changed, *moved]), before, strict=True):
        np.testing.assert_array_equal(got[:, :-1], kept[:, :-1])
    for got, kept in zip(executor.execute([given[:, order], *(table[order] for table in tables)]), before, strict=True):
        np.testing.assert_array_equal(got, kept[:, order])
    for count in (1, 2, ROWS - 1):
        few = [given[:, :count], *(table[:count] for table in tables)]
        for got, kept in zip(executor.execute(few), before, strict=True):
            np.testing.assert_allclose(got, kept[:, :count], rtol=2e-2, atol=2e-2)  # other kernels round otherwise
