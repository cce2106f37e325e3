"""Attention of few rows by subgroup shuffles: of subgroups as small as a CPU's, and of large ones.

What only a GPU runs is the shuffle of sixteen lanes itself; here workgroup memory stands in for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Limits
from liveshape.kernels import Kernel
from liveshape.kernels.preprocessor import resolve
from liveshape.ops import attention_heuristics as heuristics
from liveshape.ops import attention_routes
from tests.ops.cases import attention as cases
from tests.support.graphs import OpCase, sweep

EXCHANGE = """
var<workgroup> exchanged: array<vec4<f32>, WG>;
var<private> own: u32;
fn put_exchanged(value: vec4<f32>) {
    workgroupBarrier();
    exchanged[own] = value;
    workgroupBarrier();
}
fn shuffled_four(value: vec4<f32>, step: u32) -> vec4<f32> {
    put_exchanged(value);
    return exchanged[own ^ step];
}
fn shuffled(value: f32, step: u32) -> f32 {
    return shuffled_four(vec4<f32>(value), step).x;
}
fn from_neighbour(value: f32, first: u32, place: u32) -> f32 {
    put_exchanged(vec4<f32>(value));
    return exchanged[own - own % LANES + place].x;
}
"""


def by_memory(kernel: Kernel) -> Kernel:
    """The kernel with its shuffles through workgroup memory, so that any number of lanes runs anywhere."""
    before, rest = resolve(kernel.text, {}).split("fn shuffled(")
    text = before + EXCHANGE + rest[rest.index("const SLICE") :]
    start = text.index("@builtin(subgroup_invocation_id)")
    text = text[:start] + text[text.index(") {", start) :]
    body = text.index(") {", start) + 3
    text = f"{text[:body]}\n    own = thread;\n    let place_in_subgroup = thread;{text[body:]}"
    changed = copy(kernel)
    changed.text, changed.variants = (text,), {}
    return changed


def few(name: str, **options: Any) -> OpCase:
    return cases.cached(name, **{"sizes": (1, 3, 2), **options})


# Rows unsplit, in blocks and split; heads of whole slices, with a short last one, smaller than the lanes.
CASES = [
    few("split", heads=(8, 2), capacity=433),
    few("mask with holes", causal=False, mask=lambda s: cases.In("float32", (s, 96), cases._holes)),
    few("one query", cache="float16", heads=(24, 1), size=8, capacity=400, sizes=(1,)),
    pytest.param(few("sharp", make=cases._sharp, capacity=300, atol=1e-3, rtol=1e-3), marks=pytest.mark.slow),
    pytest.param(few("odd head", heads=(3, 3), size=7, capacity=300, sizes=(1, 8, 3)), marks=pytest.mark.slow),
    pytest.param(few("half", cache="float16", heads=(6, 2), size=48, capacity=400), marks=pytest.mark.slow),
    pytest.param(
        few("bool mask", capacity=300, batch=2, mask=lambda s: cases.In("bool", (2, 1, s, 300), cases._seen)),
        marks=pytest.mark.slow,
    ),
]


@pytest.fixture(autouse=True)
def short_of_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Contexts of these tests are short: they are unsplit up to a hundred keys."""
    monkeypatch.setattr(heuristics, "ROW_WORKGROUP_VEC4S", 400)
    heuristics.split_results_shape.cache_clear()
    yield
    heuristics.split_results_shape.cache_clear()


def device_of(lanes: int, threads: int = 64) -> Device:
    limits = replace(
        open_device().limits,
        subgroup=lanes,
        max_invocations=threads,
        max_cooperating_threads=256,
        max_workgroup_bytes=16384,
    )
    return open_device(limits=limits)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_subgroups_of_this_device(case: OpCase) -> None:
    device = device_of(4)
    sweep(case, device.limits, device, rounds=1)
    assert "attention/few_rows_subgroups" in {variant.kernel.name for variant in device._pipelines}


@pytest.mark.parametrize("lanes", [16, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES[1:], ids=lambda case: case.name)
def test_many_lanes(case: OpCase, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = attention_routes.CONTIGUOUS
    monkeypatch.setattr(attention_routes, "CONTIGUOUS", kernels._replace(few=by_memory(kernels.few)))
    device = device_of(lanes)
    sweep(case, device.limits, device, rounds=1)
    assert "attention/few_rows_subgroups" in {variant.kernel.name for variant in device._pipelines}


def test_tiles_reduce_by_shuffles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many rows are in few threads, those of a row fit a small subgroup."""
    monkeypatch.setattr(heuristics, "TILE_SHAPES", heuristics.TILE_SHAPES[-1:])
    device = device_of(4, 32)
    case = cases._plain("tiles", "float32", lambda s: (1, 2, 70, 12), lambda s: (1, 2, s, 12), sizes=(40, 7))
    sweep(case, device.limits, device, rounds=1)
    assert "attention/tiled+shuffles" in {variant.kernel.name for variant in device._pipelines}


@pytest.mark.parametrize("lanes", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("room", [16384, 49152])
@pytest.mark.parametrize("size", [1, 6, 48, 64, 80, 128, 256, 300])
def test_subgroup_blocks_fit_workgroup_memory(size: int, room: int, lanes: int) -> None:
    limits = Limits(max_workgroup_bytes=room, max_invocations=1024, subgroup=lanes)
    for heads, rows, context in [(8, 4, 64), (8, 16, 64), (8, 4, 9000), (2, 16, 9000), (64, 1, 9000)]:
        block = heuristics.subgroup_block_of(heads, rows, size, context, limits)
        if block is None:
            assert -(-size // 4) > heuristics.LANE_VEC4S * min(lanes, 16), "only large heads have no shuffles"
            continue
        subgroups = block.threads // block.lanes
        assert subgroups * block.rows * (16 * -(-size // 4) + 8) <= room
        assert block.rows <= block.lanes <= lanes
        assert 1 <= block.combine_threads <= min(block.lanes, subgroups)


def test_splits_grow_with_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the token of a Llama with a billion parameters: one dispatch, then ever more splits, until they fill it."""
    monkeypatch.undo()
    limits = Limits(subgroup=32, max_invocations=1024)
    blocks = [heuristics.subgroup_block_of(8, 4, 64, context, limits) for context in range(1, 9000)]
    splits = [block.splits for block in blocks if block]
    assert len(splits) == len(blocks)
    assert splits == sorted(splits)
    assert [splits[context - 1] for context in (1, 384, 385, 2048, 8999)] == [1, 1, 13, 64, 66]
    assert (
        len({(block.rows, block.threads, block.prefetch, block.combine_threads) for block in blocks if block}) == 2
    ), "two pipelines"
