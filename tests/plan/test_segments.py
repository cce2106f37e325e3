"""Bindings above the limit: every kernel can be split at every binding, and limits need be no power of two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.device.tint import tint_source
from liveshape.graph import Limits
from liveshape.graph.limits import binding_parts, segment_bytes
from liveshape.kernels.preprocessor import texts
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.chains import Chain
from tests.support.kernels import KERNELS, default_variants
from tests.support.tint import refusals


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_every_binding_of_every_kernel_can_be_split_and_rounded(name: str) -> None:
    """Rewriting read comments as code: `reduce` did not parse."""
    kernel, device = KERNELS[name], open_device()
    if any("subgroup_matrix_" in text for text in texts(kernel.text)):  # which only Tint knows
        assert not refusals({tint_source(variant): variant.label for variant in default_variants(kernel, subgroup=32)})
        return
    if any("subgroup" in text for text in texts(kernel.text)):
        device = open_device(limits=replace(device.limits, subgroup=4))
    packs_halves = any("pack2x16float" in text for text in texts(kernel.text))
    if (kernel.needs_half or packs_halves) and not device.limits.half:
        return  # no plan for this device has it
    for variant in default_variants(kernel, subgroup=4):
        device._device.create_shader_module(code=variant.source)


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
