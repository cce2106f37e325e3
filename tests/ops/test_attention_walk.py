"""Attention of few rows where threads hand each other values: by subgroups as small as a CPU's, and by large ones.

What only a GPU runs is the exchange of sixteen lanes itself; here memory of the workgroup stands in for it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from liveshape.device import subgroups
from liveshape.device.adapters import usable_adapters
from liveshape.device.webgpu import Device, limits_of, open_device
from liveshape.graph import Limits
from liveshape.kernels import Kernel
from liveshape.ops import attention
from liveshape.ops import attention_ways as ways
from tests.ops.cases import attention as cases
from tests.support.graphs import OpCase, sweep

GPU = {"max_parts": 256, "max_workgroup_bytes": 16384}

EXCHANGE = """
var<workgroup> exchanged: array<vec4<f32>, WG>;
var<private> own: u32;
fn put_exchanged(value: vec4<f32>) {
    workgroupBarrier();
    exchanged[own] = value;
    workgroupBarrier();
}
fn fours_across(value: vec4<f32>, step: u32) -> vec4<f32> {
    put_exchanged(value);
    return exchanged[own ^ step];
}
fn across(value: f32, step: u32) -> f32 {
    return fours_across(vec4<f32>(value), step).x;
}
fn from_neighbour(value: f32, first: u32, place: u32) -> f32 {
    put_exchanged(vec4<f32>(value));
    return exchanged[own - own % LANES + place].x;
}
"""


def by_memory(kernel: Kernel) -> Kernel:
    """The kernel with its exchange of values through memory, so that any number of lanes runs anywhere."""
    before, rest = kernel.text.split("fn across(")
    text = before + EXCHANGE + rest[rest.index("const SLICE") :]
    start = text.index("@builtin(subgroup_invocation_id)")
    text = text[:start] + text[text.index(") {", start) :]
    body = text.index(") {", start) + 3
    text = f"{text[:body]}\n    own = thread;\n    let place_in_subgroup = thread;{text[body:]}"
    return replace(kernel, text=text, variants={})


def few(name: str, **options: object) -> OpCase:
    return cases.cached(name, **{"sizes": (1, 2, 4, 3, 8), **options})  # type: ignore[arg-type]


# Rows that are alone, that share and that are split; heads of whole slices, of a short last one, smaller than the lanes.
CASES = [
    few("split", heads=(8, 2), size=16, capacity=433),
    few("split", cache="float16", heads=(6, 2), size=48, capacity=400),
    few("odd head", heads=(3, 3), size=7, capacity=300),
    few("many heads on one", heads=(24, 1), size=8, capacity=400, sizes=(1,)),
    few("bool mask", causal=False, capacity=300, batch=2, mask=lambda s: cases.In("bool", (2, 1, s, 300), cases._seen)),
    few("mask with holes", causal=False, mask=lambda s: cases.In("float32", (s, 96), cases._holes)),
    few("sharp", make=cases._sharp, capacity=300, atol=1e-3, rtol=1e-3),
]


@pytest.fixture(scope="module")
def small_subgroups() -> Device:
    """The device of these tests with its own subgroups, whatever their size is."""
    limits = limits_of(open_device(), subgroup=4, max_invocations=64, **GPU)
    return Device(usable_adapters()[0], 0, limits=limits)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_subgroups_of_this_device(case: OpCase, small_subgroups: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    # A row is alone in short contexts, then it shares, and splits.
    monkeypatch.setattr(ways, "ALONE_FOURS", 100 * -(-16 // 4))
    ways.parts_shape.cache_clear()
    sweep(case, small_subgroups.limits, small_subgroups, rounds=1)
    ways.parts_shape.cache_clear()
