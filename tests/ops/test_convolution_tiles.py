"""Convolutions where threads are many and where they are few: small tiles that share the depth, or large ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Limits
from liveshape.graph.limits import MANY_THREADS
from liveshape.plan.compiling import compile
from tests.ops.cases.convolution import CASES
from tests.support.graphs import OpCase, build, sweep

NAMES = ("batch", "height and width", "stride", "pointwise batch", "window of all", "deep", "transposed")
TILED = [case for case in CASES if case.name in {f"convolution {name} float32" for name in NAMES}]


@pytest.mark.parametrize("case", TILED, ids=lambda case: case.name)
def test_tiles_of_the_other_kind_of_device(case: OpCase) -> None:
    """The sweep of all operators takes those of the device that runs it."""
    limits = open_device().limits
    cooperating = MANY_THREADS - 1 if limits.has_many_threads else Limits.max_cooperating_threads
    sweep(case, replace(limits, max_cooperating_threads=cooperating), rounds=1)


def test_few_threads_do_not_split_k() -> None:
    (deep,) = (case for case in TILED if "deep" in case.name)
    few, many = (
        compile(build(deep, max(deep.sizes)), Limits(max_cooperating_threads=cooperating)).scratch
        for cooperating in (MANY_THREADS - 1, MANY_THREADS)
    )
    assert not any(few)
    assert any(many)
