"""Convolutions where threads are many, with tiles that share the depth, and where they are few, in lanes or not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Limits
from liveshape.graph.limits import MANY_THREADS
from liveshape.plan.compiling import compile
from tests.ops.cases.convolution import CASES
from tests.support.graphs import OpCase, build, sweep

NAMES = ("batch", "height and width", "stride", "pointwise batch", "window of all", "deep", "transposed", "groups")
DEPTHWISE = ("depthwise batch", "depthwise height", "depthwise rows", "volume depthwise")
TILED = [case for case in CASES if case.name in {f"convolution {name} float32" for name in (*NAMES, *DEPTHWISE)}]
KINDS = {
    "many threads": {"max_cooperating_threads": Limits.max_cooperating_threads},
    "few threads": {"max_cooperating_threads": MANY_THREADS - 1, "lanes": 0},
    "four lanes": {"max_cooperating_threads": MANY_THREADS - 1, "lanes": 4},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", TILED, ids=lambda case: case.name)
def test_tiles_of_another_kind_of_device(case: OpCase, kind: str) -> None:
    """The sweep of all operators takes those of the device that runs it."""
    sweep(case, replace(open_device().limits, **KINDS[kind]), rounds=1)


def test_few_threads_do_not_split_k() -> None:
    deep = _case("deep")
    few, many = (
        compile(build(deep, max(deep.sizes)), Limits(max_cooperating_threads=cooperating)).scratch
        for cooperating in (MANY_THREADS - 1, MANY_THREADS)
    )
    assert not any(few)
    assert any(many)


@pytest.mark.parametrize(
    ("name", "changes", "kernel"),
    [
        ("deep", {}, "convolution/lane_tiles"),
        ("transposed", {}, "convolution/lane_tiles"),
        ("pointwise batch", {}, "convolution/lane_tiles"),
        ("depthwise height", {}, "convolution/lane_depthwise"),
        ("volume depthwise", {}, "convolution/lane_depthwise"),
        ("volume depthwise", {"lanes": 4}, "convolution/depthwise"),  # 27 taps are more than four lanes keep
        ("depthwise wide", {}, "convolution/depthwise"),  # and so is a row of 45
        ("deep", {"lanes": 0}, "matmul/tiled+convolution"),
        ("deep", {"max_invocations": 4}, "matmul/tiled+convolution"),
        ("deep", {"max_cooperating_threads": MANY_THREADS}, "matmul/tiled+convolution"),
        ("depthwise height", {"max_cooperating_threads": MANY_THREADS}, "convolution/depthwise"),
    ],
)
def test_lanes_are_of_few_threads(name: str, changes: dict[str, int], kernel: str) -> None:
    """Subgroups of a device with few threads share what they load; its other convolutions stay as they are."""
    case = _case(name)
    limits = replace(Limits(max_invocations=32, max_cooperating_threads=4, lanes=8), **changes)
    names = {variant.kernel.name for variant in compile(build(case, max(case.sizes)), limits).kernels}
    assert {name for name in names if "convolution" in name} - {"convolution/combine_splits"} == {kernel}


def _case(name: str) -> OpCase:
    (found,) = (case for case in CASES if case.name == f"convolution {name} float32")
    return found
