"""Bindings above the limit: every kernel can be split at every binding, and limits need be no power of two."""

from __future__ import annotations

import gc
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import liveshape.ops
from liveshape.device.backends import open_device
from liveshape.graph import Limits
from liveshape.graph.limits import binding_parts, segment_bytes
from liveshape.kernels import Kernel, Variant
from liveshape.kernels.preprocessor import texts
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.chains import Chain

assert liveshape.ops.OPS  # importing the operators loads their kernels
KERNELS = {each.name: each for each in gc.get_objects() if isinstance(each, Kernel) and each.name != "sample"}
PLAIN = frozenset({"f32", "f16", "i32", "u32"})


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_every_binding_of_every_kernel_can_be_split_and_rounded(name: str) -> None:
    """Rewriting read comments as code: `reduce` did not parse."""
    kernel, device = KERNELS[name], open_device()
    if any("subgroup" in text for text in texts(kernel.text)):
        device = open_device(limits=replace(device.limits, subgroup=4))
    if kernel.needs_half and not device.limits.half:
        return  # no plan for this device has it
    types = {
        binding.element: kernel.allowed.get(binding.element, ("f32",))[0]
        for binding in kernel.bindings
        if binding.element not in PLAIN
    }
    constants: dict[str, Any] = {
        word: f"{value}u" if kind == "u32" and isinstance(value, int) else value
        for word, (kind, value) in kernel.constants.items()
    }
    if kernel.vectored:
        constants["VEC"] = 4 if "quantized" in kernel.others else 1  # rows are quantized by vec4s
    chosen = (tuple(types.items()), tuple(constants.items()))
    for split, subgroup in product(range(len(kernel.bindings)), (0, 4) if kernel.has_subgroup_text else (0,)):
        segments = tuple(2 if place == split else 1 for place in range(len(kernel.bindings)))
        variant = Variant(kernel, *chosen, segments, 1 << 20, kernel.group_size, subgroup=subgroup)
        device._device.create_shader_module(code=variant.source)
    rounds = tuple(
        binding.writes and types.get(binding.element, binding.element) == "f32" for binding in kernel.bindings
    )
    for count in (1, 2) if any(rounds) else ():
        segments = tuple(count if each else 1 for each in rounds)
        row = (*chosen, segments, 1 << 20, kernel.group_size)
        device._device.create_shader_module(code=Variant(kernel, *row, rounds=rounds).source)


@pytest.mark.parametrize("limit", [1000, 1008, 1024, 2992, 3008, 4096, 5000])
def test_one_function_counts_bindings(limit: int) -> None:
    limits = Limits(max_binding_bytes=limit, max_buffer_bytes=1 << 14)
    for nbytes in range(16, 1 << 14, 48):
        count = binding_parts(nbytes, nbytes, limits)
        assert count == 1 or (count - 1) * segment_bytes(limits) < nbytes <= count * segment_bytes(limits)
        assert (count == 1) == (nbytes <= limit)
        assert segment_bytes(limits) <= limit


@pytest.mark.parametrize("most", [1 << 20, 5000, 2992], ids=["large buffers", "odd buffers", "small buffers"])
@pytest.mark.parametrize("limit", [2992, 2048, 3008])
def test_limits_that_are_no_power_of_two(limit: int, most: int) -> None:
    """A tensor between a power of two and the limit, in a block above it: 188 of 700 elements were wrong."""
    most = max(most, limit)
    limits = replace(open_device().limits, max_binding_bytes=limit, max_buffer_bytes=most, max_bindings=1 << 8)
    device = open_device(limits=limits)
    small, big = 700, 1800
    chain = Chain()
    x, y = chain.input((small,)), chain.input((big,))
    twice = chain.node("aten.add.Tensor", y, y, 1, chain.tensor((big,)))
    four = chain.node("aten.mul.Scalar", twice, 2.0, chain.tensor((big,)))
    total = chain.node("aten.sum.default", four, None, chain.tensor(()))
    doubled = chain.node("aten.add.Tensor", x, x, 1, chain.tensor((small,)))
    six = chain.node("aten.mul.Scalar", doubled, 3.0, chain.tensor((small,)))
    out = chain.node("aten.add.Tensor", six, total, 1, chain.tensor((small,)))
    plan = compile(chain.graph(out), limits)
    assert {plan.bindings(tensor) for tensor in (y, twice, four)} != {1}
    executor = Executor(plan, device)
    given = np.arange(small, dtype=np.float32), np.ones(big, np.float32)
    for rows in (small, 513, 512, 1, small):
        executor.poison()
        (got,) = executor.execute([given[0][:rows], given[1]])
        np.testing.assert_array_equal(got, given[0][:rows] * 6 + 4 * big)
