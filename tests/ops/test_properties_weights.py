"""Weights in groups against torch, in forms that hypothesis draws: bits, minima, groups, columns, rows."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from tests.ops.cases.quantized import q4gsw
from tests.support.graphs import OpCase, sweep


@st.composite
def layers(draw: st.DrawFn) -> OpCase:
    group = draw(st.one_of(st.integers(1, 40), st.sampled_from((16, 32, 64, 128))))
    depth = group * draw(st.integers(1, max(1, 600 // group)))
    return q4gsw(
        depth,
        draw(st.integers(1, 150)),
        group,
        bias=draw(st.booleans()),
        aligned=draw(st.sampled_from((1, 4))),
        bits=draw(st.sampled_from((4, 8))),
        minima=draw(st.booleans()),
        sizes=tuple(sorted(draw(st.sets(st.integers(0, 140), min_size=2, max_size=5)) | {1})),
    )


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(layers())
def test_some_layers(case: OpCase) -> None:
    sweep(case, rounds=1)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(layers())
def test_many_layers(case: OpCase) -> None:
    sweep(case, rounds=1)


@functools.cache
def with_many_threads() -> Device:
    """One device for all examples: each has kernels of its own."""
    return open_device(limits=replace(open_device().limits, max_invocations=256, max_cooperating_threads=256))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(layers())
def test_many_layers_of_many_threads(case: OpCase) -> None:
    """With the kernels that a GPU takes."""
    device = with_many_threads()
    sweep(case, device.limits, device, rounds=1)
