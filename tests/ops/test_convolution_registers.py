"""Convolutions in tiles of registers, where workgroups have many threads, as on a GPU: tiles of every size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.ops import convolution
from tests.ops.cases.convolution import conv
from tests.support.graphs import OpCase, sweep

QUICK = [
    conv("height", lambda s: (1, 5, s, 23), (67, 5, 3, 3), padding=1, sizes=(29, 3, 17)),
    conv("batch", lambda s: (s, 8, 11, 13), (130, 8, 3, 3), padding=1, sizes=(3, 1, 2), clamp=(0.0, 1.0)),
    conv("shared depth", lambda s: (s, 128, 7, 7), (256, 128, 3, 3), padding=1, sizes=(8, 1)),
    conv("groups", lambda s: (2, 18, s, 9), (99, 6, 3, 3), groups=3, stride=2, padding=1, sizes=(17, 2, 9)),
]
MORE = [
    conv("deep", lambda s: (1, 256, s, 7), (36, 256, 3, 3), padding=1, sizes=(7, 1, 4), clamp=(None, 0.5)),
    conv("dilation", lambda s: (1, 33, s, 31), (40, 33, 3, 3), padding=2, dilation=2, sizes=(23, 5, 12)),
    conv("volume", lambda s: (1, 16, 5, s, 9), (33, 16, 2, 3, 3), padding=1, sizes=(19, 3, 8)),
    conv("line", lambda s: (2, 37, s), (130, 37, 5), padding=2, sizes=(257, 5, 129)),
    conv("strided pixels", lambda s: (3, 24, s, 19), (67, 24, 1, 1), stride=2, sizes=(23, 3, 17), bias=False),
    conv("halves", lambda s: (1, 12, s, 21), (64, 12, 3, 3), padding=1, sizes=(23, 9), dtype="float16"),
]


@pytest.fixture(scope="module")
def many() -> Device:
    return open_device(limits=replace(open_device().limits, max_invocations=256, max_cooperating_threads=256))


@pytest.mark.parametrize("enough", [1, 8, 256])  # tiles: from the largest ones to the smallest
@pytest.mark.parametrize(
    "case", [*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE)], ids=lambda case: case.name
)
def test_tiles_in_registers(case: OpCase, enough: int, many: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "ENOUGH_TILES", enough)
    sweep(case, many.limits, many, rounds=1)
    found = {variant.kernel.name for variant in many._pipelines}  # type: ignore[attr-defined]
    assert "matmul/register_tiles+convolution" in found
