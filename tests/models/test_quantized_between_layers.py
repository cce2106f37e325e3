"""Rows that their producer quantizes, an RMSNorm or a gated unit: the codes are those of layers that quantize."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Graph
from liveshape.lower import activations
from liveshape.lower.activations import with_activations
from liveshape.lower.fusion import fuse
from tests.models.test_int8_activations import threads
from tests.models.test_layers import ROWS, Layers
from tests.support.chains import executor_of

SIZES = (ROWS, 1, 2, 8, 9, 33, 1, 0, 5)  # of one row, of few, of tiles of two kinds


def unit(depth: int, width: int, bias: bool = False) -> tuple[Layers, list[Any]]:
    """x + down(gated unit of its norm)."""
    made = Layers(group=32)
    x = made.chain.input((1, ROWS, depth))
    gated = made.gated(made.norm(x), width, bias)
    return made, [made.add(x, made.layer(gated, depth))]


def unfused(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """The graph with layers that quantize their rows themselves."""
    with monkeypatch.context() as patched:
        patched.setattr(activations, "_quantize_between_layers", lambda given: given)
        return with_activations(graph, "int8")


def quantized_in(graph: Graph) -> int:
    """How many values are quantized rows."""
    return sum(value.dtype == "int8" and value.constant is None for value in graph.values if hasattr(value, "dtype"))


def rows_at(size: int, depth: int) -> list[np.ndarray]:
    return [np.random.default_rng(size).standard_normal((1, size, depth)).astype(np.float32)]


def same(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, device: Any, depth: int, made: int, sizes: Sequence[int] = SIZES
) -> None:
    before, after = unfused(graph, monkeypatch), with_activations(graph, "int8")
    assert (quantized_in(before), quantized_in(after)) == (0, made)
    executors = executor_of(before, device), executor_of(after, device)
    for size in sizes:
        found = []
        for executor in executors:
            executor.poison()
            found.append([(array.shape, array.tobytes()) for array in executor.execute(rows_at(size, depth))])
        assert found[0] == found[1], f"at {size}"


@pytest.mark.parametrize(
    ("invocations", "cooperating", "depth", "width", "bias", "made"),
    [
        pytest.param(256, 8, 64, 96, False, 2, marks=pytest.mark.slow),  # the RMSNorm is a dispatch of its own
        pytest.param(256, 256, 512, 96, False, 1, marks=pytest.mark.slow),  # it is fused, and tiles have split-K
        pytest.param(256, 256, 96, 160, False, 1, marks=pytest.mark.slow),  # large tiles
        pytest.param(
            100, 16, 64, 96, True, 2, marks=pytest.mark.slow
        ),  # workgroups too small to quantize in the epilogue
        pytest.param(256, 1, 96, 160, True, 2, marks=pytest.mark.slow),
        pytest.param(256, 256, 1024, 160, True, 2, marks=pytest.mark.slow),
    ],
)
def test_a_gated_unit(
    monkeypatch: pytest.MonkeyPatch, invocations: int, cooperating: int, depth: int, width: int, bias: bool, made: int
) -> None:
    layers, outputs = unit(depth, width, bias)
    device = threads(invocations, cooperating)
    same(fuse(layers.chain.graph(*outputs), device.limits), monkeypatch, device, depth, made)


@pytest.mark.slow
def test_a_gated_unit_at_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, outputs = unit(64, 96, False)
    device = threads(256, 8)
    same(fuse(layers.chain.graph(*outputs), device.limits), monkeypatch, device, 64, made=2, sizes=(5, 1, 2, 0, 8))


def test_rows_with_another_consumer_stay_float() -> None:
    layers = Layers(group=32)
    x = layers.chain.input((1, ROWS, 64))
    normed = layers.norm(x)
    gated = layers.gated(x, 64)
    outputs = [layers.layer(normed, 32), normed, layers.layer(gated, 32), layers.add(gated, x)]
    graph = with_activations(fuse(layers.chain.graph(*outputs), open_device().limits), "int8")
    assert quantized_in(graph) == 0


def test_layers_that_take_no_int8_are_given_floats() -> None:
    layers = Layers(group=32)
    x = layers.chain.input((1, ROWS, 64))
    normed = layers.norm(x)
    outputs = [layers.layer(normed, 32)]
    layers.group = 16
    outputs.append(layers.layer(normed, 32))
    graph = with_activations(fuse(layers.chain.graph(*outputs), open_device().limits), "int8")
    assert Counter(node.args[1].dtype for node in graph.nodes[1:]) == Counter(int8=1, uint8=1)
    assert quantized_in(graph) == 0
