"""Operators on a device with other limits: folded grids and split bindings, and as many threads as a GPU has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Limits
from liveshape.graph.elements import prod, storage_bytes
from liveshape.ops import OPS
from liveshape.ops.shapes import ceil_div
from tests.ops.cases import CASES
from tests.ops.cases.quantized import q4gsw
from tests.support.graphs import OpCase, build, sweep

# Weights of other kinds, in bindings of 4096 bytes.
OTHER_WEIGHTS = (
    q4gsw(256, 70, 32, minima=True, sizes=(1, 3, 20)),
    q4gsw(128, 77, 32, bits=8, bias=True, sizes=(1, 3, 20)),
)
# One case of each operator, with an epilogue and without: what is tested here are its kernels, not its arithmetic, and
# without f16 halves have none of their own. Names that share a generator count once in `make test`.
FIRST = list({(case.op, case.form): case for case in reversed(CASES)}.values())
# Of 4-bit layers and attention the kernels take long to compile: they wait for the tier.
LARGE = {
    "et_vk.linear_q4gsw.default",
    "et_vk.linear_qcs4w.default",
    "et_vk.linear_dq8ca_q4gsw.default",
    "et_vk.sdpa.default",
    "sdpa_with_kv_cache.default",
    "liveshape.attention",
}
LARGE |= {case.op for case in FIRST if case.op.startswith("liveshape.") and "q4gsw" in case.op}
# Operators that one function defines differ in an expression alone.
QUICK = {case.name for case in {OPS[case.op].run.__code__: case for case in FIRST}.values() if case.op not in LARGE}


# What has halves alone is there where a device has such.
IN_HALVES = {"liveshape.channels_last", "liveshape.patches"}  # operators, and what the names of cases begin with,
HALVES_NAMED = "channels last group norm"  # also where expressions are behind them


@pytest.fixture(scope="module")
def tight() -> Device:
    # Of which a kernel may have many; Dawn has 16, and needs larger ones.
    bindings = open_device().limits.max_bindings
    nbytes, bindings = (8192, bindings) if bindings <= 16 else (4096, 1 << 10)
    changes = {"max_groups": 64, "max_binding_bytes": nbytes, "max_buffer_bytes": 4 * nbytes, "max_bindings": bindings}
    # A software adapter plans with few threads; these are the workgroups of GPUs.
    threads = {"max_invocations": 256, "max_cooperating_threads": 256}
    limits: Limits = replace(open_device().limits, half=False, **changes, **threads)
    return open_device(limits=limits)


def _segments(case: OpCase, limits: Limits) -> int:
    """The bindings of all tensors of a fused operator."""
    if case.op not in ("liveshape.composed", "liveshape.pointwise", "liveshape.pointwise_results", "liveshape.loaded"):
        return 0
    tensors = [tensor for tensor in build(case, max(case.sizes)).tensors if tensor.constant is None]
    sizes = (storage_bytes(each.dtype, prod(each.max_shape), limits.half) for each in tensors)
    return sum(ceil_div(size, limits.max_binding_bytes) for size in sizes)


@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param(case, marks=[] if case.name in QUICK else [pytest.mark.slow], id=case.name) for case in FIRST),
        *(pytest.param(case, id=case.name, marks=pytest.mark.slow) for case in OTHER_WEIGHTS),
    ],
)
def test_tight_limits(case: OpCase, tight: Device) -> None:
    real, limits = open_device().limits, tight.limits
    # One kernel of what is fused binds all of its tensors: in segments they must fit what an adapter has.
    while _segments(case, limits) > real.max_bindings:
        nbytes = 2 * limits.max_binding_bytes
        limits = replace(limits, max_binding_bytes=nbytes, max_buffer_bytes=4 * nbytes)
    if case.op in IN_HALVES or case.name.startswith(HALVES_NAMED):
        limits = replace(limits, half=real.half)
    device = tight if limits == tight.limits else open_device(limits=limits)
    sweep(case, device.limits, device, rounds=1)
