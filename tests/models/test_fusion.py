"""Fused nodes give the very bytes of the operators that they stand for, at every live size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liveshape.device import open_device
from liveshape.executor import Executor
from liveshape.fusion import fuse
from tests.support.chains import Chain

MAX, WIDTH, HIDDEN = 43, 24, 36


def feed_forward(dtype: str, width: int = WIDTH) -> Chain:
    """x + y, normalized, through a gated linear unit, and added again."""
    chain = Chain(open_device().limits)
    random = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return chain.constant((random.standard_normal(shape) / shape[-1] ** 0.5).astype(dtype))

    def tensor(last: int) -> Any:
        return chain.tensor((1, MAX, last), dtype)

    x, y = chain.input((1, MAX, width), dtype), chain.input((1, MAX, width), dtype)
    total = chain.node("aten.add.Tensor", x, y, 1, tensor(width))
    norm = chain.node("et_vk.rms_norm.default", total, weight(width), 1e-6, tensor(width))
    gate = chain.node("aten.linear.default", norm, weight(HIDDEN, width), None, tensor(HIDDEN))
    up = chain.node("aten.linear.default", norm, weight(HIDDEN, width), None, tensor(HIDDEN))
    sigmoid = chain.node("aten.sigmoid.default", gate, tensor(HIDDEN))
    silu = chain.node("aten.mul.Tensor", gate, sigmoid, tensor(HIDDEN))
    gated = chain.node("aten.mul.Tensor", up, silu, tensor(HIDDEN))
    down = chain.node("aten.linear.default", gated, weight(width, HIDDEN), None, tensor(width))
    chain.node("aten.add.Tensor", total, down, 1, tensor(width))
    return chain


@pytest.mark.parametrize("width", [24, 23])
def test_fused_and_unfused_give_equal_bytes(width: int) -> None:
    dtype = "float32"
    plain, other = feed_forward(dtype, width), feed_forward(dtype, width)
    unfused = plain.graph(plain.nodes[-1].args[-1])
    fused = fuse(other.graph(other.nodes[-1].args[-1]))
    assert (len(unfused.nodes), len(fused.nodes)) == (9, 6)
    assert [node.index for node in fused.nodes] == list(range(6))
    executors = Executor(unfused, open_device()), Executor(fused, open_device())
    for size in (MAX, 1, 2, 7, 29, 3):
        random = np.random.default_rng(size)
        inputs = [random.standard_normal((1, size, width)).astype(dtype) for _ in range(2)]
        results = []
        for executor in executors:
            executor.poison()
            results.append(executor.execute(inputs)[0].tobytes())
        assert results[0] == results[1], f"at {size}"


def test_a_sum_that_broadcasts_when_live_is_still_right() -> None:
    chain = feed_forward("float32")
    executor = Executor(fuse(chain.graph(chain.nodes[0].args[-1], chain.nodes[1].args[-1])), open_device())
    x, y = np.ones((1, 7, WIDTH), np.float32), np.full((1, 1, WIDTH), 2, np.float32)
    total, _ = executor.execute([x, y])
    np.testing.assert_array_equal(total, np.full((1, 7, WIDTH), 3, np.float32))


@pytest.mark.parametrize("output", [5, 6], ids=["sigmoid", "silu"])
def test_what_the_caller_wants_is_not_fused_away(output: int) -> None:
    chain = feed_forward("float32")
    graph = fuse(chain.graph(chain.nodes[-1].args[-1], chain.nodes[output - 1].args[-1]))
    assert "liveshape.swiglu" not in [node.name for node in graph.nodes]


def test_gates_of_unlike_origin_are_not_fused() -> None:
    chain = Chain(open_device().limits)
    gate, up = chain.input((1, MAX, 8)), chain.input((1, MAX, 8))
    sigmoid = chain.node("aten.sigmoid.default", gate, chain.tensor((1, MAX, 8)))
    silu = chain.node("aten.mul.Tensor", gate, sigmoid, chain.tensor((1, MAX, 8)))
    out = chain.node("aten.mul.Tensor", silu, up, chain.tensor((1, MAX, 8)))
    assert len(fuse(chain.graph(out)).nodes) == 3, "their live shapes may differ and broadcast"


def test_halves_are_not_fused() -> None:
    chain = feed_forward("float16")
    assert len(fuse(chain.graph(chain.nodes[-1].args[-1])).nodes) == 9, "their rounding in between may be skipped"
