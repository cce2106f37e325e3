"""4-bit GEMV with its row in workgroup memory, as many threads take weights whose neighbours they load as vectors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.plan.compiling import compile
from tests.ops.cases.quantized import q4gsw
from tests.support.graphs import OpCase, build, sweep

ROWS = (1, 2, 9)
CASES = {
    "minima": q4gsw(512, 70, 32, minima=True, sizes=ROWS),
    "minima of 16": q4gsw(1024, 36, 16, minima=True, bias=True, sizes=ROWS),
    "bytes": q4gsw(512, 77, 32, bits=8, bias=True, sizes=ROWS),
    "bytes of 16": q4gsw(2048, 13, 16, bits=8, sizes=ROWS),
}


@pytest.fixture(scope="module", params=[8192, 32768], ids=["little memory", "memory"])
def device(request: pytest.FixtureRequest) -> Device:
    """A device with threads as a GPU has them, and memory of a workgroup for a row of 512 numbers or of 2,048."""
    threads = {"max_invocations": 256, "max_cooperating_threads": 256}
    return open_device(limits=replace(open_device().limits, max_workgroup_bytes=request.param, **threads))


def kernels_of(case: OpCase, device: Device) -> set[str]:
    plan = compile(build(case, max(case.sizes)), device.limits)
    return {variant.label for route in plan.routes for variant, _ in route.dispatched}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if "16" in name else ()) for name in CASES])
def test_staged_row(name: str, device: Device) -> None:
    case = CASES[name]
    staged = device.limits.max_workgroup_bytes == 32768 or name in ("minima", "bytes")
    labels = kernels_of(case, device)
    assert any("staged" in label for label in labels) == staged
    # Not where bytes have two scales to a vector.
    assert any("ALTERNATING=2u" in label for label in labels) == (name != "bytes of 16")
    sweep(case, device.limits, device, rounds=2)


@pytest.mark.parametrize("depth", [25, 28, 31, 57])
def test_a_depth_of_no_whole_eights_is_not_staged(depth: int, device: Device) -> None:
    """One group covers such a depth, so that vectors of it are loaded; numbers past the last eight belong to it too."""
    for columns, aligned in ((1, 1), (7, 4)):
        case = q4gsw(depth, columns, depth, minima=True, aligned=aligned, sizes=ROWS)
        assert any("VECTOR_LOADS=true" in label for label in kernels_of(case, device))
        sweep(case, device.limits, device, rounds=1)


def test_words_are_read_from_where_the_row_lies(device: Device) -> None:
    assert not any("staged" in label for label in kernels_of(q4gsw(512, 70, 32, sizes=ROWS), device))
