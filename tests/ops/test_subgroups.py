"""Reductions by subgroup shuffles, in workgroups of several subgroups: with those of this device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from tests.ops.cases import CASES
from tests.support.graphs import OpCase, sweep

OPERATORS = ("rms_norm", "linear_q4gsw", "sum.dim", "argmax", "amin", "layer_norm")
CHOSEN = [case for operator in OPERATORS for case in [each for each in CASES if operator in each.op][:3]]


@pytest.fixture(scope="module")
def device() -> Device:
    """Workgroups of several subgroups: some units lie in one, others in several that reduce in workgroup memory."""
    limits = replace(
        open_device().limits, subgroup=4, max_invocations=64, max_cooperating_threads=64, max_workgroup_bytes=16384
    )
    return open_device(limits=limits)


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)
def test_by_shuffles(case: OpCase, device: Device) -> None:
    sweep(case, device.limits, device, rounds=1)
    reached = {variant.subgroup for variant in device._pipelines if variant.kernel.has_subgroup_text}
    assert reached <= {4}, "each that can"
