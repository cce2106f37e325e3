"""Quantized rows at other depths, groups and columns, and on devices with other limits: integers stay exact."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liveshape.device.backends import open_device
from tests.ops.cases.quantized import INT8_ROWS, dq8ca, int8_activations, q4gsw
from tests.support.graphs import OpCase, sweep

LIMITS = [(32, 1), (32, 256), (100, 16), (256, 1), (256, 256)]
CASES = [int8_activations(128, 77, 32, bias=True), dq8ca(128, 77, 64, sizes=INT8_ROWS)]


@pytest.mark.slow
@pytest.mark.parametrize(("invocations", "cooperating"), LIMITS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_other_threads_and_several_bindings(case: OpCase, invocations: int, cooperating: int) -> None:
    """The bytes of 43 rows and the weight are above the limit of a binding."""
    limits = open_device().limits
    most = 4096 if limits.max_bindings > 16 else 8192  # with Dawn's 16 bindings they need larger ones
    changes = {"max_groups": 64, "max_binding_bytes": most, "max_buffer_bytes": 4 * most}
    threads = {"max_invocations": invocations, "max_cooperating_threads": cooperating}
    limits = replace(limits, half=False, **changes, **threads)
    device = open_device(limits=limits)
    sweep(case, device.limits, device, rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 24, 77, 130])
@pytest.mark.parametrize(("depth", "group"), [(32, 32), (64, 32), (64, 64), (576, 32), (576, 576), (1024, 64)])
def test_depths_and_groups(depth: int, group: int, columns: int) -> None:
    sweep(int8_activations(depth, columns, group), rounds=1)
    sweep(int8_activations(depth, columns, group, between=True, bias=True), rounds=1)
    sweep(int8_activations(depth, columns, group, dtype="float16"), rounds=1)
    sweep(dq8ca(depth, columns, group, bias=True, sizes=INT8_ROWS), rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 5, 64, 130])
@pytest.mark.parametrize(("depth", "group"), [(256, 32), (296, 8), (1184, 8), (2080, 32), (2100, 20)])
def test_split_k(depth: int, group: int, columns: int) -> None:
    """Few columns of many rows: tiles are too few to fill a device, so they have split-K."""
    sizes = (17, 32, 33, 64, 65, 130)
    sweep(q4gsw(depth, columns, group, bias=True, sizes=sizes), rounds=1)
    if depth % 32 == 0:
        sweep(int8_activations(depth, columns, group, bias=True, sizes=sizes), rounds=1)


@st.composite
def layers(draw: st.DrawFn) -> OpCase:
    depth = 32 * draw(st.integers(1, 40))
    group = draw(st.sampled_from([each for each in range(32, depth + 1, 32) if depth % each == 0]))
    columns, bias = draw(st.integers(1, 150)), draw(st.booleans())
    sizes = tuple(sorted(draw(st.sets(st.integers(0, 140), min_size=2, max_size=5))))
    if draw(st.booleans()):
        return dq8ca(depth, columns, group, bias=bias, sizes=sizes)
    between, minima = draw(st.booleans()), draw(st.booleans())
    return int8_activations(depth, columns, group, bias=bias, between=between, minima=minima, sizes=sizes)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(layers())
def test_many_layers(case: OpCase) -> None:
    sweep(case, rounds=1)
